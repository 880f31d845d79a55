// Exercise 15.3: A total by shuffles, known to every thread.
// Your part begins in line 34 of this file.
//
// Divide each row by its sum. The rows are shared out as in exercise 15.2, and there are whole
// warps: the number of threads is a multiple of 32. Add up a warp's sums by shuffles, bring the
// warps' sums together in `per_warp`, and make sure that every thread of the thread block knows the
// total, since each has columns to divide.
//
// You have
// - `x`, `out`: `[rows, columns]` of type T
// - `warp`, `lane`, `warps`: of this thread; how many warps there are, 1 to 32
// - `per_warp`: float in shared memory, 32 places
// - `__shfl_xor_sync(ALL_LANES, value, step)`: returns the `value` of lane `lane ^ step`; all 32
//   lanes must call it
// - `to_float(value)`, `from_float<T>(value)`: from T to float, and back, rounded
// - `__syncthreads()`: all threads meet
//
// In a terminal: yaie check 15.3, yaie hint 15.3, yaie reset 15.3.

// Divide each row by its sum, as a sampler does after it has dropped tokens: warp shuffles.
//
// Computes  out[r][c] = x[r][c] / Σ x[r][k] over k, with the sum in float32
// Shapes    x and out [rows, columns], float32, float16 or bfloat16; the caller chooses the number
//           of thread blocks and the number of threads per thread block, a multiple of 32 up to
//           1024
// Owns      each thread block: rows blockIdx.x, blockIdx.x + gridDim.x, …; each thread: columns
//           threadIdx.x, threadIdx.x + blockDim.x, … of each of these rows
#include "common.cuh"

template <typename T>
__global__ void normalize_rows(const T* x, T* out, int rows, int columns) {
    __shared__ float per_warp[32];  // at most 1024 threads, so at most 32 warps
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    // exercise 15.3 begin: each row of this thread block: its sum by shuffles, the quotients
    // your lines
    // exercise 15.3 end
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
