// Exercise 15.4: RMSNorm: one pass, one row per thread block.
// Your part begins in line 45 of this file.
//
// Normalize a row: out = x / sqrt(mean(x²) + eps) × weight. A thread block of THREADS threads has
// one row of `size` columns, from which it reads at `from` and which it writes at `to`. Compute in
// float, and round once, when you write.
//
// You have
// - `from`, `to`, `weight`: the row that is read, the row that is written, and the weights: `size`
//   numbers of type T each
// - `eps`: a float
// - `THREADS`, `threadIdx.x`: threads per thread block, and this one's number
// - `block_sum(value)`: returns the sum of all threads' values to every thread; all threads must
//   call it
// - `to_float(value)`, `from_float<T>(value)`: from T to float, and back, rounded
// - `rsqrtf(v)`: 1 / sqrt(v)
//
// In a terminal: yaie check 15.4, yaie hint 15.4, yaie reset 15.4.

// RMSNorm, rung 1 of 2: one thread block per row, whose sums meet in shared memory.
//
// Computes  out[r][c] = x[r][c] / √(mean of x[r]² + eps) × weight[c], in float32, rounded once
// Shapes    x and out [rows, size], weight [size]: float32, float16 or bfloat16
// Owns      each thread block: a row; each thread: columns threadIdx.x, threadIdx.x + blockDim.x, …
#include "common.cuh"

constexpr int THREADS = 256;

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
__global__ void rms_norm_simple(const T* x, const T* weight, T* out, int size, float eps) {
    const T* from = x + (size_t)blockIdx.x * size;
    T* to = out + (size_t)blockIdx.x * size;
    // exercise 15.4 begin: the sum of the squares, the scale, and the scaled row
    // your lines
    // exercise 15.4 end
}

template <typename T>
static cudaError_t launch(const T* x, const T* weight, T* out, int rows, int size, float eps,
                          cudaStream_t stream) {
    if (rows == 0 || size == 0) return cudaSuccess;
    rms_norm_simple<<<rows, THREADS, 0, stream>>>(x, weight, out, size, eps);
    return cudaGetLastError();
}

extern "C" cudaError_t rms_norm_simple_f32(const float* x, const float* weight, float* out,
                                           int rows, int size, float eps, cudaStream_t stream) {
    return launch(x, weight, out, rows, size, eps, stream);
}
extern "C" cudaError_t rms_norm_simple_f16(const __half* x, const __half* weight, __half* out,
                                           int rows, int size, float eps, cudaStream_t stream) {
    return launch(x, weight, out, rows, size, eps, stream);
}
extern "C" cudaError_t rms_norm_simple_bf16(const __nv_bfloat16* x, const __nv_bfloat16* weight,
                                            __nv_bfloat16* out, int rows, int size, float eps,
                                            cudaStream_t stream) {
    return launch(x, weight, out, rows, size, eps, stream);
}
