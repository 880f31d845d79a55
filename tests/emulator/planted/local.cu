// A thread's own arrays and variables: an index past a row or an end, a value that was never given.
#include <cuda_runtime.h>

constexpr int N = 4, ROWS = 8, COLUMNS = 8;
__constant__ float weights[5] = {1, 2, 3, 4, 5};

//: own_array
//= (out[:32] == 4 * x[:32] + 10).all()
__global__ void k(const float* x, float* out, int n) {
    float own[N];
    int t = threadIdx.x;
    for (int i = 0; i < N; ++i) own[i] = x[t] + weights[i];
    //! out_of_bounds: for (int i = 0; i <= N; ++i) own[i] = x[t] + weights[i];
    //! out_of_bounds: for (int i = N; i > 0; --i) own[i] = x[t] + weights[i];
    //! out_of_bounds: for (int i = 0; i < N; ++i) own[i] = x[t] + weights[i + n / 48];
    //! out_of_bounds: for (int i = -1; i < N; ++i) own[i] = x[t] + weights[i + 1];
    //! out_of_bounds: for (unsigned i = 0; i < N; ++i) own[i - t] = x[t] + weights[i];
    float sum = 0;
    for (int i = 0; i < N; ++i) sum += own[i];
    //! out_of_bounds: for (int i = 0; i <= N; ++i) sum += own[i];
    //! out_of_bounds: for (int i = 0; i < N; ++i) sum += own[i + t / 31];
    out[t] = sum;
}
RUN k<<<1, 32, 0, stream>>>(x, out, n);

//: rows_of_shared
//= (out[:64] == x[:64].view(8, 8).roll(-1, 1).flatten()).all()
__global__ void k(const float* x, float* out) {
    __shared__ float s[ROWS][COLUMNS];
    int c = threadIdx.x, r = threadIdx.y;
    s[r][c] = x[r * COLUMNS + c];
    //! out_of_bounds: s[r][c + 1] = x[r * COLUMNS + c];
    //! out_of_bounds: s[r][c - 1] = x[r * COLUMNS + c];
    //! out_of_bounds: s[0][r * COLUMNS + c] = x[r * COLUMNS + c];
    //! out_of_bounds: s[r + 1][c] = x[r * COLUMNS + c];
    __syncthreads();
    out[r * COLUMNS + c] = s[r][(c + 1) % COLUMNS];
    //! out_of_bounds: out[r * COLUMNS + c] = s[r][c + 1];
    //! out_of_bounds: out[r * COLUMNS + c] = s[r][c + 1 - 2 * (c == 0)];
    //! out_of_bounds: atomicAdd(&s[r][c + 1], 1.0f);
    //! out_of_bounds: float right = s[r][c + 1]; if (c < COLUMNS - 1) out[r * COLUMNS + c] = right;
}
RUN k<<<1, dim3(COLUMNS, ROWS), 0, stream>>>(x, out);

//: rows_of_own
//= (out[:32] == 6 * x[:32] + 6).all()
struct Tile { float value[2][3]; int rows; };
__device__ float total(const Tile& tile) {
    float sum = 0;
    for (int r = 0; r < tile.rows; ++r)
        for (int c = 0; c < 3; ++c) sum += tile.value[r][c];
    //! out_of_bounds:     for (int c = 0; c < 4; ++c) sum += tile.value[r][c];
    //! out_of_bounds:     for (int c = 0; c < 3; ++c) sum += tile.value[c][r];
    return sum;
}
__global__ void k(const float* x, float* out) {
    Tile tile = {{}, 2};
    for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 3; ++c) tile.value[r][c] = x[threadIdx.x] + c;
    //! out_of_bounds:     for (int c = 0; c < 3; ++c) tile.value[r][c + 1] = x[threadIdx.x] + c;
    //! out_of_bounds:     for (int c = 0; c < 3; ++c) tile.value[c][r] = x[threadIdx.x] + c;
    out[threadIdx.x] = total(tile);
}
RUN k<<<1, 32, 0, stream>>>(x, out);

//: past_the_end_unread
//= (out[:32] == x[:32] * 4).all()
__global__ void k(const float* x, float* out) {
    __shared__ float s[2][16];
    float own[4];
    for (float* p = own; p != &own[4]; ++p) *p = x[threadIdx.x];
    float* flat = &s[0][0];
    flat[threadIdx.x] = own[0] + own[3];
    __syncwarp();
    const float* end = &s[1][16];
    float sum = own[1] + own[2];
    for (const float* p = flat + threadIdx.x; p < end; p += 32) sum += *p;
    out[threadIdx.x] = sum;
}
RUN k<<<1, 32, 0, stream>>>(x, out);
