// Exercise 23.3: Three faults that compute-sanitizer found.
// Your part begins in line 32 of this file.
//
// `out[i]` is the sum of `x[i]` and its two neighbors; past either end of `x` they count as 0. The
// draft has three faults. The notebook shows how memcheck, racecheck and initcheck reported them on
// a GPU, with line, threads and address. Read the reports, then repair the lines between `begin` and
// `end`.
//
// You have
// - `x`, `out`, `n`: float32, `n` numbers each
// - `THREADS`: 256, the threads of a thread block
// - `tile[THREADS + 2]`: in shared memory: the thread block's elements, the one before, the one
//   after
// - `i`: the element of this thread; it may lie past the end
// - `__syncthreads()`: all threads meet
//
// In a terminal: yaie check 23.3, yaie hint 23.3, yaie reset 23.3.

// The sum of each element and its two neighbors.
//
// Computes  out[i] = x[i - 1] + x[i] + x[i + 1]; x is taken to be 0 past either end
// Shapes    x and out [n], float32
// Owns      each thread: an element; each thread block: THREADS of them, and a copy of the
//           element before and the one after (the halo) in shared memory
#include <cuda_runtime.h>

constexpr int THREADS = 256;  // per thread block

__global__ void moving_sum(const float* x, float* out, int n) {
    __shared__ float tile[THREADS + 2];  // tile[k] is x[blockIdx.x * THREADS + k - 1]
    int i = blockIdx.x * THREADS + threadIdx.x;
    // exercise 23.3 begin: three faults
    tile[threadIdx.x + 1] = i < n ? x[i] : 0.0f;
    if (threadIdx.x == 0) tile[0] = x[i - 1];
    if (threadIdx.x == THREADS - 1) tile[THREADS + 1] = i + 1 < n ? x[i + 1] : 0.0f;
    if (i < n) out[i] += tile[threadIdx.x] + tile[threadIdx.x + 1] + tile[threadIdx.x + 2];
    // exercise 23.3 end
}

extern "C" cudaError_t moving_sum_f32(const float* x, float* out, int n, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    moving_sum<<<(n + THREADS - 1) / THREADS, THREADS, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}
