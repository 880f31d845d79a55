// How many logits fall into each of 256 bins: bins of each thread block's own, then atomics.
//
// Computes  counts[b] = the number of elements of x whose key begins with the 8 bits b; the keys in
//           ascending order are the floats in descending order, as in top_p.cu
// Shapes    x [n], float32, float16 or bfloat16, without NaN; counts int32 [256]; the caller chooses
//           the number of thread blocks
// Owns      each thread block of 128 threads: elements blockIdx.x × 128 + threadIdx.x, and so on by
//           gridDim.x × 128, and 256 bins in shared memory
// Moves     every element once; at most 256 atomics of 4 bytes per thread block
// Oracle    a sort of the elements into bins in Python, in tests/test_sample.py
// Idea      most logits have one of a few exponents, so most threads add to the same few bins. In
//           global memory such additions wait for each other in the L2 cache, across the whole GPU.
//           A privatised histogram counts in the shared memory of each SM, where an addition is
//           near and waits for its own thread block only, and adds its bins to the result once.
#include "common.cuh"

constexpr int THREADS = 128, BINS = 256;

// The first 8 bits of a key that is smaller for larger floats.
static __device__ int bin_of(float x) {
    unsigned bits = __float_as_uint(x + 0.0f);  // −0 becomes 0
    return (bits >> 31 ? bits : ~bits & 0x7fffffffu) >> 24;
}

template <typename T>
__global__ void histogram(const T* x, int* counts, size_t n) {
    __shared__ int bins[BINS];
    // exercise 21.4 begin: count this thread block's elements in `bins`, add them to `counts`
    for (int bin = threadIdx.x; bin < BINS; bin += THREADS) bins[bin] = 0;
    __syncthreads();
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n;
         i += gridDim.x * (size_t)THREADS)
        atomicAdd(&bins[bin_of(to_float(x[i]))], 1);
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += THREADS)
        if (bins[bin] > 0) atomicAdd(&counts[bin], bins[bin]);
    // exercise 21.4 end
}

template <typename T>
static cudaError_t launch(const T* x, int* counts, long long n, int blocks, cudaStream_t stream) {
    cudaError_t error = cudaMemsetAsync(counts, 0, BINS * sizeof(int), stream);
    if (error != cudaSuccess) return error;
    histogram<<<blocks, THREADS, 0, stream>>>(x, counts, (size_t)n);
    return cudaGetLastError();
}

extern "C" cudaError_t histogram_f32(const float* x, int* counts, long long n, int blocks,
                                     cudaStream_t stream) {
    return launch(x, counts, n, blocks, stream);
}
extern "C" cudaError_t histogram_f16(const __half* x, int* counts, long long n, int blocks,
                                     cudaStream_t stream) {
    return launch(x, counts, n, blocks, stream);
}
extern "C" cudaError_t histogram_bf16(const __nv_bfloat16* x, int* counts, long long n, int blocks,
                                      cudaStream_t stream) {
    return launch(x, counts, n, blocks, stream);
}
