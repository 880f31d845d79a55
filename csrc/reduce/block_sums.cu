// One sum per thread block: a tree in shared memory whose active threads are neighbors.
//
// Computes  out[b] = Σ x[b][i] over i, in float32
// Shapes    x [blocks, threads], float32, float16 or bfloat16; out [blocks]; the caller chooses the
//           number of threads per thread block, from 1 to 1024
// Owns      each thread block: a row; each thread: an element, and in a step the sum of two places
// Moves     every element once: blocks × threads × element size
// Oracle    x.double().sum(-1), in tests/test_kernels.py
// Idea      in each step half as many places as before take in another one. Which threads add them
//           is free: threads 0, 1, 2, … fill whole warps, and all other warps skip the addition.
//           If instead the thread of the place adds it, every warp has a few active lanes.
#include "common.cuh"

template <typename T>
__global__ void block_sums(const T* x, float* out) {
    extern __shared__ float partial[];  // one number per thread
    int i = threadIdx.x, threads = blockDim.x;
    partial[i] = to_float(x[(size_t)blockIdx.x * threads + i]);
    // exercise 15.5 begin: the tree, whose additions threads 0, 1, 2, … make
    for (int step = 1; step < threads; step *= 2) {
        __syncthreads();
        int place = 2 * step * i;
        if (place + step < threads) partial[place] += partial[place + step];
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
