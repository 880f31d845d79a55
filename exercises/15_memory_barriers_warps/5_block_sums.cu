// Exercise 15.5: A tree that keeps its warps full.
// Your part begins in line 32 of this file.
//
// The tree in the file is right: in the step of width `step` each thread whose number is a multiple
// of 2 × `step` adds one place of `partial` to its own, until place 0 holds the sum. But every warp
// takes part in the first five steps, with 16, 8, 4, 2 and 1 active lanes. Keep the additions, and
// change which threads do them: threads 0, 1, 2, …, without a gap, so that whole warps have nothing
// to do and skip the step.
//
// You have
// - `partial`: float in shared memory, a place for each thread, which already holds its thread's
//   number
// - `i`, `threads`: `threadIdx.x`, and how many threads there are: 1 to 1,024, any number
// - `__syncthreads()`: all threads meet; every one of them must come
// - `out[blockIdx.x]`: gets `partial[0]` after your lines, from thread 0
//
// In a terminal: yaie check 15.5, yaie hint 15.5, yaie reset 15.5.

// One sum per thread block: a tree in shared memory whose active threads are neighbors.
//
// Computes  out[b] = Σ x[b][i] over i, in float32
// Shapes    x [blocks, threads], float32, float16 or bfloat16; out [blocks]; the caller chooses the
//           number of threads per thread block, from 1 to 1024
// Owns      each thread block: a row; each thread: an element, and in a step the sum of two places
#include "common.cuh"

template <typename T>
__global__ void block_sums(const T* x, float* out) {
    extern __shared__ float partial[];  // one number per thread
    int i = threadIdx.x, threads = blockDim.x;
    partial[i] = to_float(x[(size_t)blockIdx.x * threads + i]);
    // exercise 15.5 begin: the tree, whose additions threads 0, 1, 2, … make
    for (int step = 1; step < threads; step *= 2) {
        __syncthreads();
        if (i % (2 * step) == 0 && i + step < threads) partial[i] += partial[i + step];
    }
    // exercise 15.5 end
    if (i == 0) out[blockIdx.x] = partial[0];
}

template <typename T>
static cudaError_t launch(const T* x, float* out, int blocks, int threads, cudaStream_t stream) {
    if (blocks == 0) return cudaSuccess;
    block_sums<<<blocks, threads, threads * sizeof(float), stream>>>(x, out);
    return cudaGetLastError();
}

extern "C" cudaError_t block_sums_f32(const float* x, float* out, int blocks, int threads,
                                      cudaStream_t stream) {
    return launch(x, out, blocks, threads, stream);
}
extern "C" cudaError_t block_sums_f16(const __half* x, float* out, int blocks, int threads,
                                      cudaStream_t stream) {
    return launch(x, out, blocks, threads, stream);
}
extern "C" cudaError_t block_sums_bf16(const __nv_bfloat16* x, float* out, int blocks, int threads,
                                       cudaStream_t stream) {
    return launch(x, out, blocks, threads, stream);
}
