// Divide each row by its sum, as a sampler does once it has thrown tokens out: warp shuffles.
//
// Computes  out[r][c] = x[r][c] / Σ x[r][k] over k, the sum in float32
// Shapes    x and out [rows, columns] of float32, float16 or bfloat16; the caller says how many
//           thread blocks there are and how many threads each has, a multiple of 32 up to 1024
// Owns      a thread block: the rows blockIdx.x, blockIdx.x + gridDim.x, …; a thread: of each row
//           the columns threadIdx.x, threadIdx.x + blockDim.x, …
// Moves     every element in once and out once; the second read of a row finds it in a cache
// Oracle    x / x.sum(-1, keepdim=True) in float64, in tests/test_kernels.py
// Idea      the lanes of a warp hand each other their registers. Five exchanges give every lane the
//           warp's sum, with no barrier; only one number for each warp goes through shared memory.
//           (Five lines that recur in every kernel; common.cuh has them as warp_sum.)
#include "common.cuh"

template <typename T>
__global__ void normalize_rows(const T* x, T* out, int rows, int columns) {
    __shared__ float per_warp[32];  // at most 1024 threads are at most 32 warps
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    // exercise 14.3 begin: of every row of this thread block the sum, by shuffles, then the quotients
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = x + (size_t)row * columns;
        float sum = 0.0f;
        for (int column = threadIdx.x; column < columns; column += blockDim.x) {
            sum += to_float(from[column]);
        }
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, step);

        if (lane == 0) per_warp[warp] = sum;
        __syncthreads();
        float total = lane < warps ? per_warp[lane] : 0.0f;
        for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(ALL_LANES, total, step);
        __syncthreads();  // per_warp has been read, the next row may write it

        for (int column = threadIdx.x; column < columns; column += blockDim.x) {
            float value = to_float(from[column]);
            out[(size_t)row * columns + column] = from_float<T>(value / total);
        }
    }
    // exercise 14.3 end
}

template <typename T>
static cudaError_t launch(const T* x, T* out, int rows, int columns, int blocks, int threads,
                          cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    normalize_rows<<<blocks, threads, 0, stream>>>(x, out, rows, columns);
    return cudaGetLastError();
}

extern "C" cudaError_t normalize_rows_f32(const float* x, float* out, int rows, int columns,
                                          int blocks, int threads, cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t normalize_rows_f16(const __half* x, __half* out, int rows, int columns,
                                          int blocks, int threads, cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t normalize_rows_bf16(const __nv_bfloat16* x, __nv_bfloat16* out, int rows,
                                           int columns, int blocks, int threads,
                                           cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
