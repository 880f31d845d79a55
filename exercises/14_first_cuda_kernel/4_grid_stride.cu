// Exercise 14.4: A grid of any size: the grid-stride loop.
// Your part begins in line 26 of this file.
//
// Here the caller says how many thread blocks there are, and there may be far fewer threads than
// elements, or more. Write the kernel so that the whole vector is added, every element once, and so
// that in each iteration the threads of a warp take neighboring elements.
//
// You have
// - `x`, `y`, `out`: float32, `n` numbers each; `n` is an int
// - `gridDim.x`, `blockDim.x`: how many thread blocks there are, and threads in each
// - `blockIdx.x`, `threadIdx.x`: which of them this thread is
// - `long long`: an int of 64 bits
//
// In a terminal: yaie check 14.4, yaie hint 14.4, yaie reset 14.4.

// Vector addition with a grid smaller than the vector: a grid-stride loop.
//
// Computes  out[i] = x[i] + y[i]
// Shapes    x, y and out [n], float32; the caller chooses thread_blocks
// Owns      each thread: every (thread_blocks × THREADS)-th element
#include <cuda_runtime.h>

constexpr int THREADS = 256;  // per thread block

__global__ void vector_add(const float* x, const float* y, float* out, int n) {
    // exercise 14.4 begin: the elements of this thread, one after another
    // your lines
    // exercise 14.4 end
}

extern "C" cudaError_t vector_add_stride_f32(const float* x, const float* y, float* out, int n,
                                             int thread_blocks, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    vector_add<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}
