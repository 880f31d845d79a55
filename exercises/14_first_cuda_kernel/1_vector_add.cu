// Exercise 14.1: Add two vectors, one element per thread.
// Your parts begin in lines 28 and 36 of this file.
//
// Write a kernel and its launch. In the kernel: which element is this thread's, does it exist, and
// its sum. In the launcher: how many thread blocks of `THREADS` threads cover `n` elements, and the
// launch on `stream`. Change the lines between `begin` and `end` only, in both places.
//
// You have
// - `x`, `y`, `out`: float32, `n` numbers each; `n` is an int, at least 1
// - `blockIdx.x`, `blockDim.x`, `threadIdx.x`: the number of this thread block, its threads, and the
//   number of this thread in it
// - `THREADS`: threads per thread block
// - `vector_add<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n)`: the launch, on `stream`
//
// In a terminal: yaie check 14.1, yaie hint 14.1, yaie reset 14.1.

// Vector addition, one element per thread: the first kernel of the course. In float32 only;
// vector_add.cu takes the other dtypes.
//
// Computes  out[i] = x[i] + y[i]
// Shapes    x, y and out [n]
// Owns      each thread: one element; each thread block: THREADS adjacent elements
#include <cuda_runtime.h>

constexpr int THREADS = 256;  // per thread block

__global__ void vector_add(const float* x, const float* y, float* out, int n) {
    // exercise 14.1 begin: this thread's element, whether it exists, and its sum
    // your lines
    // exercise 14.1 end
}

extern "C" cudaError_t vector_add_scalar_f32(const float* x, const float* y, float* out, int n,
                                             cudaStream_t stream) {
    if (n == 0) return cudaSuccess;  // CUDA rejects a grid without thread blocks
    // exercise 14.1 begin: how many thread blocks, and the launch
    // your lines
    // exercise 14.1 end
    return cudaGetLastError();
}
