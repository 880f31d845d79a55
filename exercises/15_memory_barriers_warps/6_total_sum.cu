// Exercise 15.6: The last thread block adds up.
// Your part begins in line 58 of this file.
//
// Add up all of `x` in one launch. Each thread block already has the sum of its elements in `sum`,
// in every thread. Store it as the thread block's part in `parts`, which has a place for each thread
// block. Then let the thread block that finishes last, whichever that is, add up all the parts and
// write the total to `out[0]`. `ticket[0]` is a counter that is 0 when the kernel begins, and must
// be 0 again when it ends, since the next launch uses it too. There may be more thread blocks than
// THREADS.
//
// You have
// - `sum`: float, the sum of this thread block's elements, the same in all of its threads
// - `parts`, `ticket`, `out`: global memory: a float per thread block; a counter, 0 at first; the
//   total
// - `last`: a `bool` in shared memory, by which one thread tells all others of its thread block
// - `block_sum(value)`: the sum of `value` over the thread block, in every thread; all threads must
//   call it
// - `atomicAdd(ticket, 1)`: adds 1, returns what was there before
// - `__threadfence()`: what this thread wrote before it is visible to the GPU before what it writes
//   after it
// - `__syncthreads()`: all threads of a thread block meet
// - `gridDim.x`, `THREADS`: thread blocks, and threads in each
//
// In a terminal: yaie check 15.6, yaie hint 15.6, yaie reset 15.6.

// The sum of a whole tensor in one launch: the thread block that finishes last adds up the parts.
//
// Computes  out[0] = Σ x[i] over i, in float32, with the same bits in every run
// Shapes    x [n], float32, float16 or bfloat16; out [1]; parts float32 [blocks], for partial sums;
//           ticket int32 [1], 0 before the first launch and after each; the caller chooses the
//           number of thread blocks
// Owns      each thread block: elements blockIdx.x × THREADS + threadIdx.x, and so on by
//           gridDim.x × THREADS; the last one to finish: all of `parts`
#include "common.cuh"

constexpr int THREADS = 128;

// The sum of `value` over the thread block, returned in every thread. All threads must call it.
static __device__ float block_sum(float value) {
    __shared__ float per_warp[THREADS / WARP];
    value = warp_sum(value);
    __syncthreads();  // wait until the sums of an earlier call are read
    if (threadIdx.x % WARP == 0) per_warp[threadIdx.x / WARP] = value;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < THREADS / WARP; ++warp) total += per_warp[warp];
    return total;
}

template <typename T>
__global__ void total_sum(const T* x, float* out, float* parts, int* ticket, size_t n) {
    __shared__ bool last;  // whether all other thread blocks have stored their parts
    float sum = 0.0f;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n;
         i += gridDim.x * (size_t)THREADS)
        sum += to_float(x[i]);
    sum = block_sum(sum);  // every thread has the sum of the thread block
    // exercise 15.6 begin: store the part, take a ticket; the last thread block writes the total
    // your lines
    // exercise 15.6 end
}

template <typename T>
static cudaError_t launch(const T* x, float* out, float* parts, int* ticket, long long n,
                          int blocks, cudaStream_t stream) {
    total_sum<<<blocks, THREADS, 0, stream>>>(x, out, parts, ticket, (size_t)n);
    return cudaGetLastError();
}

extern "C" cudaError_t total_sum_f32(const float* x, float* out, float* parts, int* ticket,
                                     long long n, int blocks, cudaStream_t stream) {
    return launch(x, out, parts, ticket, n, blocks, stream);
}
extern "C" cudaError_t total_sum_f16(const __half* x, float* out, float* parts, int* ticket,
                                     long long n, int blocks, cudaStream_t stream) {
    return launch(x, out, parts, ticket, n, blocks, stream);
}
extern "C" cudaError_t total_sum_bf16(const __nv_bfloat16* x, float* out, float* parts, int* ticket,
                                      long long n, int blocks, cudaStream_t stream) {
    return launch(x, out, parts, ticket, n, blocks, stream);
}
