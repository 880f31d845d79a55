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

//: own_sum
//= (out[:32] == x[:32] * 4).all()
__device__ void load(const float* x, float& first, float* second) {
    first = x[0];  // @load
    *second = x[0];
}
__global__ void k(const float* x, float* out, int n) {
    int t = threadIdx.x;
    float sum, a, b;
    sum = 0;
    //! uninitialized @sum: ;
    //! uninitialized @sum: if (t < n / 8) sum = 0;
    load(x + t, a, &b);
    //! uninitialized @sum: a = x[t];
    //! uninitialized @sum: if (t) load(x + t, a, &b);
    for (int i = 0; i < 2; ++i) sum += a + b;  // @sum
    //! uninitialized: float more; for (int i = 0; i < 2; ++i) sum += i ? more : a + b, more = sum / 2;
    out[t] = sum;
    //! uninitialized: float last; out[t] = sum + (t == 31 ? last : 0);
    //! uninitialized: const float* from; if (n == 0) from = x; out[t] = from ? sum : 0;
}
RUN k<<<1, 32, 0, stream>>>(x, out, n);

//: accumulators
//= (out[:64].view(32, 2) == x[:32, None] * torch.tensor([3, 6])).all()
template <int COUNT, typename T>
__global__ void k(const T* x, T* out) {
    T acc[COUNT][2], factor[COUNT];
    for (int i = 0; i < COUNT; ++i) factor[i] = T(i + 1);
    //! uninitialized @sum: for (int i = 1; i < COUNT; ++i) factor[i] = T(i + 1);
    for (int i = 0; i < COUNT; ++i) acc[i][0] = acc[i][1] = 0;
    //! uninitialized @sum: for (int i = 0; i < COUNT; ++i) acc[i][0] = 0;
    //! uninitialized @sum: for (int i = 0; i < COUNT; ++i) acc[0][i % 2] = 0;
    for (int i = 0; i < COUNT; ++i)
        for (int j = 0; j < 2; ++j) acc[i][j] += x[threadIdx.x] * T(j + 1) * factor[i];  // @sum
    for (int j = 0; j < 2; ++j) out[threadIdx.x * 2 + j] = acc[0][j] + acc[1][j];
}
RUN k<2, float><<<1, 32, 0, stream>>>(x, out);

//: vector_of_own
//= (out[:96] == x[:96] + 1).all()
__global__ void k(const float* x, float* out, int n) {
    float4 v;
    int i = threadIdx.x;
    if (i < n / 4) v = ((const float4*)x)[i];
    //! uninitialized @out: if (i < n / 8) v = ((const float4*)x)[i];
    //! uninitialized @out: if (i < n / 4) v.x = x[4 * i], v.y = x[4 * i + 1], v.w = x[4 * i + 3];
    if (i < n / 4) ((float4*)out)[i] = make_float4(v.x + 1, v.y + 1, v.z + 1, v.w + 1);  // @out
}
RUN k<<<1, 32, 0, stream>>>(x, out, n);

//: given_by_one_lane
//= (out[:64].view(2, 32) == torch.tensor([[1], [33]])).all()
__device__ float largest(float value) {
    for (int lanes = 16; lanes; lanes /= 2) {
        float other;
        other = __shfl_xor_sync(~0u, value, lanes);
        value = fmaxf(value, other);
    }
    return value;
}
__global__ void k(const float* x, float* out) {
    float first, unused, most;
    int lane = threadIdx.x % 32, ticket;
    if (lane == 0) first = x[threadIdx.x], ticket = threadIdx.x;
    first = __shfl_sync(~0u, first, 0);
    //! uninitialized @out: __shfl_sync(~0u, first, 0);
    ticket = __shfl_sync(~0u, ticket, 0);
    most = largest(lane ? 0 : first);  // @out
    switch (lane) {
        case 0: int x0; x0 = lane; out[threadIdx.x] = x0 + first; break;  // @out
        default: out[threadIdx.x] = first;  // @out
    }
    if (ticket % 32 == 0 && most == first) out[threadIdx.x] = most;  // @out
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: state_of_own
//= (out[:32] == x[:32] * 2 + 1).all()
struct Pair { float value; int count; };
__device__ Pair pair(float value) { Pair p; p.value = value; p.count = 1; return p; }
__global__ void k(const float* x, float* out) {
    float buffer[8], fraction, whole;
    memset(buffer, 0, sizeof(buffer));
    for (int i = 0; i < 8; ++i) {
        float next;
        sincosf(0 * x[i], &fraction, &whole);
        fraction = modff(x[threadIdx.x], &whole);
        int quotient;
        whole += remquof(4 * x[i], x[i], &quotient) + 4 - quotient;
        next = i ? buffer[i - 1] : fraction + whole;
        buffer[i] += next;
    }
    Pair p = pair(buffer[7]);
    float copy[8];
    memcpy(copy, buffer, sizeof(copy));
    out[threadIdx.x] = copy[7] + p.value + p.count;
}
RUN k<<<1, 32, 0, stream>>>(x, out);
