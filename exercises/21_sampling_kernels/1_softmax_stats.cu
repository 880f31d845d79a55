// Exercise 21.1: Maximum and sum of a row in one pass.
// Your part begins in line 48 of this file.
//
// Write the maximum of each row to best[row], and the sum of exp(x − maximum) to total[row], reading
// the row once. `from` is the row; the threads of the thread block, whole warps, share its columns.
//
// You have
// - `from`, `columns`: the row, numbers of type T, and how many
// - `best`, `total`, `row`: the outputs, float `[rows]`, and the row
// - `Stats`: a struct of two floats, `best` and `total`; `Stats{-INFINITY, 0.0f}` is that of no
//   number
// - `rescale(total, from, to)`: returns a sum relative to maximum `from` as one relative to `to`; 0
//   where there is nothing yet
// - `per_warp`: `Stats` in shared memory, a place for each warp
// - `warp`, `lane`, `warps`, `WARP`: of this thread; how many warps there are; 32
// - `__shfl_xor_sync(ALL_LANES, value, step)`: returns the `value` of lane `lane ^ step`, a number,
//   not a struct
// - `to_float(value)`, `__syncthreads()`: a T as a float; all threads meet
//
// In a terminal: yaie check 21.1, yaie hint 21.1, yaie reset 21.1.

// The maximum and the sum that a softmax needs of each row, in one pass.
//
// Computes  best[r] = max of x[r] and total[r] = Σ exp(x[r][c] − best[r]) over c, in float32; −inf
//           and 0 for a row with nothing above −inf
// Shapes    x [rows, columns], float32, float16 or bfloat16; best and total [rows]; the caller
//           chooses the number of thread blocks and the number of threads per thread block, a
//           multiple of 32 up to 1024
// Owns      each thread block: rows blockIdx.x, blockIdx.x + gridDim.x, …; each thread: columns
//           threadIdx.x, threadIdx.x + blockDim.x, … of each of these rows
#include "common.cuh"

struct Stats {
    float best, total;
};

// Turn a sum of exp(x − from) into a sum of exp(x − to); 0 if the sum is empty.
static __device__ float rescale(float total, float from, float to) {
    return from == -INFINITY ? 0.0f : total * expf(from - to);
}

template <typename T>
__global__ void softmax_stats(const T* x, float* best, float* total, int rows, int columns) {
    __shared__ Stats per_warp[32];  // at most 1024 threads, so at most 32 warps
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = x + (size_t)row * columns;
        // exercise 21.1 begin
        // your lines
        // exercise 21.1 end
        __syncthreads();  // wait until per_warp is read: the next row overwrites it
    }
}

template <typename T>
static cudaError_t launch(const T* x, float* best, float* total, int rows, int columns, int blocks,
                          int threads, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    softmax_stats<<<blocks, threads, 0, stream>>>(x, best, total, rows, columns);
    return cudaGetLastError();
}

extern "C" cudaError_t softmax_stats_f32(const float* x, float* best, float* total,
                                         int rows, int columns, int blocks, int threads,
                                         cudaStream_t stream) {
    return launch(x, best, total, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t softmax_stats_f16(const __half* x, float* best, float* total,
                                         int rows, int columns, int blocks, int threads,
                                         cudaStream_t stream) {
    return launch(x, best, total, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t softmax_stats_bf16(const __nv_bfloat16* x, float* best, float* total,
                                          int rows, int columns, int blocks, int threads,
                                          cudaStream_t stream) {
    return launch(x, best, total, rows, columns, blocks, threads, stream);
}
