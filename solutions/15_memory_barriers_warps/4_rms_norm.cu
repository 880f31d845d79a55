// Solution of exercise 15.4: RMSNorm: one pass, one row per thread block.
//
// Normalize a row: out = x / sqrt(mean(x²) + eps) × weight. A thread block of THREADS threads has
// one row of `size` columns, from which it reads at `from` and which it writes at `to`. Compute in
// float, and round once, when you write.
//
// Generated from rms_norm_simple in csrc/norm/rms_norm_simple.cu.
// Edit it there, and run `python -m yaie.course build`.

// RMSNorm, rung 1 of 2: one thread block per row, whose sums meet in shared memory.
//
// Computes  out[r][c] = x[r][c] / √(mean of x[r]² + eps) × weight[c], in float32, rounded once
// Shapes    x and out [rows, size], weight [size]: float32, float16 or bfloat16
// Owns      each thread block: a row; each thread: columns threadIdx.x, threadIdx.x + blockDim.x, …
// Moves     x in once, out once, weight once: (2 × rows + 1) × size × element size
// Oracle    the formula in float64, in tests/test_kernels.py
// Idea      one kernel replaces five operators, each of which would read and write the whole
//           tensor. The row is read twice, but the second read hits a cache.
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
    float sum = 0.0f;
    for (int column = threadIdx.x; column < size; column += THREADS) {
        float value = to_float(from[column]);
        sum += value * value;
    }
    float scale = rsqrtf(block_sum(sum) / size + eps);
    for (int column = threadIdx.x; column < size; column += THREADS) {
        float value = to_float(from[column]);
        to[column] = from_float<T>(value * scale * to_float(weight[column]));
    }
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
