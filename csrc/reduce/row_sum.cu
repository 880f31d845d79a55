// Row sums, rung 2 of 2: 16-byte loads and warp shuffles; the kernel that the engine uses.
//
// Computes  out[r] = Σ x[r][c] over c, in float32
// Shapes    x [rows, columns], float32, float16 or bfloat16; out [rows]
// Owns      up to 1024 columns, each warp: a row, so each thread block: 8 rows. With more columns,
//           each thread block: a row. The threads of a row take its 16-byte chunks in rotation.
// Moves     every element once: rows × columns × element size
// Oracle    x.double().sum(-1), in tests/test_kernels.py
// Idea      each load takes 16 bytes where a row begins at a multiple of 16, and warp shuffles
//           replace the tree of rung 1: a short row needs neither shared memory nor a barrier.
#include "common.cuh"

constexpr int THREADS = 256;
constexpr int SHORT_ROW = 1024;

template <typename T>
__global__ void row_sum(const T* x, float* out, int rows, int columns) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // a whole warp returns; with one warp per row there is no barrier
    const T* from = x + (size_t)row * columns;
    bool wide = reinterpret_cast<uintptr_t>(from) % 16 == 0;
    int whole = wide ? columns / Vec<T>::SIZE * Vec<T>::SIZE : 0;

    float sum = 0.0f;
#pragma unroll 4
    for (int i = threadIdx.x * Vec<T>::SIZE; i < whole; i += blockDim.x * Vec<T>::SIZE) {
        Vec<T> chunk = load16(from + i);
        for (int k = 0; k < Vec<T>::SIZE; ++k) sum += to_float(chunk[k]);
    }
    for (int i = whole + threadIdx.x; i < columns; i += blockDim.x) sum += to_float(from[i]);
    sum = warp_sum(sum);

    if (blockDim.x > WARP) {  // one thread block per row
        __shared__ float per_warp[THREADS / WARP];
        if (threadIdx.x % WARP == 0) per_warp[threadIdx.x / WARP] = sum;
        __syncthreads();
        sum = 0.0f;
        for (int warp = 0; warp < THREADS / WARP; ++warp) sum += per_warp[warp];
    }
    if (threadIdx.x == 0) out[row] = sum;
}

template <typename T>
static cudaError_t launch(const T* x, float* out, int rows, int columns, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    int row_threads = columns <= SHORT_ROW ? WARP : THREADS;
    int block_rows = THREADS / row_threads;
    dim3 threads(row_threads, block_rows);
    row_sum<<<ceil_div(rows, block_rows), threads, 0, stream>>>(x, out, rows, columns);
    return cudaGetLastError();
}

extern "C" cudaError_t row_sum_f32(const float* x, float* out, int rows, int columns,
                                   cudaStream_t stream) {
    return launch(x, out, rows, columns, stream);
}
extern "C" cudaError_t row_sum_f16(const __half* x, float* out, int rows, int columns,
                                   cudaStream_t stream) {
    return launch(x, out, rows, columns, stream);
}
extern "C" cudaError_t row_sum_bf16(const __nv_bfloat16* x, float* out, int rows, int columns,
                                    cudaStream_t stream) {
    return launch(x, out, rows, columns, stream);
}
