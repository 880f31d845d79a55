// Exercise 15.2: Add up rows, a thread block for each.
// Your part begins in line 33 of this file.
//
// Write the sum of each row of `x` to `out`. A thread block takes the rows blockIdx.x, blockIdx.x +
// gridDim.x, …; its threads share the columns, each adds up its own in a float, and then all the
// partial sums meet in `partial`, which has one place for each thread, and are added there in a
// tree. The caller chooses the number of thread blocks and of threads: it need not be a power of
// two. x may have more elements than an int can count.
//
// You have
// - `x`, `out`: `[rows, columns]` of type T; float32 `[rows]`
// - `partial`: float in shared memory, a place for each thread
// - `blockIdx.x`, `gridDim.x`: the number of this thread block, how many there are
// - `threadIdx.x`, `blockDim.x`: the number of this thread, how many a thread block has
// - `to_float(value)`: returns a T as a float
// - `__syncthreads()`: all threads meet; every one of them must come
// - `(size_t)row * columns`: a product in 64 bits
//
// In a terminal: yaie check 15.2, yaie hint 15.2, yaie reset 15.2.

// Row sums, rung 1 of 2: a tree in shared memory.
//
// Computes  out[r] = Σ x[r][c] over c, in float32
// Shapes    x [rows, columns], float32, float16 or bfloat16; out [rows]; the caller chooses the
//           number of thread blocks and the number of threads per thread block, from 1 to 1024
// Owns      each thread block: rows blockIdx.x, blockIdx.x + gridDim.x, …; each thread: columns
//           threadIdx.x, threadIdx.x + blockDim.x, … of each of these rows
#include "common.cuh"

template <typename T>
__global__ void row_sum_shared(const T* x, float* out, int rows, int columns) {
    extern __shared__ float partial[];  // one sum per thread
    // exercise 15.2 begin: each row of this thread block: its sum, by a tree
    // your lines
    // exercise 15.2 end
}

template <typename T>
static cudaError_t launch(const T* x, float* out, int rows, int columns, int blocks, int threads,
                          cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    row_sum_shared<<<blocks, threads, threads * sizeof(float), stream>>>(x, out, rows, columns);
    return cudaGetLastError();
}

extern "C" cudaError_t row_sum_shared_f32(const float* x, float* out, int rows, int columns,
                                          int blocks, int threads, cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t row_sum_shared_f16(const __half* x, float* out, int rows, int columns,
                                          int blocks, int threads, cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t row_sum_shared_bf16(const __nv_bfloat16* x, float* out, int rows,
                                           int columns, int blocks, int threads,
                                           cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
