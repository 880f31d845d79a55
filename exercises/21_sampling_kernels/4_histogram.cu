// Exercise 21.4: A privatised histogram.
// Your part begins in line 44 of this file.
//
// Count how many elements of `x` fall into each of 256 bins, with many thread blocks. Each thread
// block counts its own elements in `bins`, in shared memory, and then adds its bins to `counts`.
// Thread block b begins at element b × THREADS, one element per thread, and advances by the elements
// of the whole grid. `x` may have more than 2³² elements. `counts` is 0 when the kernel begins, and
// all thread blocks add to it.
//
// You have
// - `x`, `n`: the elements, [n], and their number, a size_t
// - `counts`: int [256] in global memory, zeros at first
// - `bins`: int [BINS] in shared memory, without values at first
// - `BINS`, `THREADS`: 256 bins, and the 128 threads of a thread block: fewer than bins
// - `bin_of(value)`: the bin of a float, 0 to 255
// - `to_float(x[i])`: an element as float, whatever its type
// - `atomicAdd(&place, value)`: adds to an int in shared or global memory as one step that no other
//   thread interrupts
// - `__syncthreads()`: waits for all threads of the thread block
//
// In a terminal: yaie check 21.4, yaie hint 21.4, yaie reset 21.4.

// How many logits fall into each of 256 bins: bins of each thread block's own, then atomics.
//
// Computes  counts[b] = the number of elements of x whose key begins with the 8 bits b; the keys in
//           ascending order are the floats in descending order, as in top_p.cu
// Shapes    x [n], float32, float16 or bfloat16, without NaN; counts int32 [256]; the caller chooses
//           the number of thread blocks
// Owns      each thread block of 128 threads: elements blockIdx.x × 128 + threadIdx.x, and so on by
//           gridDim.x × 128, and 256 bins in shared memory
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
    // your lines
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
