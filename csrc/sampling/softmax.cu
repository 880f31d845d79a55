// Softmax of rows of any length, 16 bytes per load; the kernel that the engine uses.
//
// Computes  out[r][c] = exp(x[r][c] − m) / Σ exp(x[r][k] − m) over k, with m the maximum of x[r],
//           in float32, rounded once; zeros for a row with nothing above −inf
// Shapes    x and out [rows, columns], float32, float16 or bfloat16
// Owns      each thread block: a row; each thread: its 16-byte chunks, blockDim.x chunks apart
// Moves     x in once and out once; the second read of a row hits a cache that has room for it, as
//           the L2 cache has for a few hundred rows of a vocabulary of 128,256
// Oracle    torch.softmax in float64, in tests/test_kernels.py
// Idea      maximum and sum come from one pass (as in softmax_stats.cu), so a row is read twice
//           instead of three times. A chunk is first summed relative to its own maximum, so one
//           rescaling serves 4 or 8 elements.
#include "common.cuh"

constexpr int MAX_THREADS = 1024;

struct Stats {
    float best, total;
};

// The value to subtract before exp: 0 if the maximum is −∞, since −∞ − −∞ is NaN.
static __device__ float finite(float best) { return best == -INFINITY ? 0.0f : best; }

static __device__ Stats merge(Stats a, Stats b) {
    float best = fmaxf(a.best, b.best);
    float a_total = a.total == 0.0f ? 0.0f : a.total * expf(a.best - best);
    float b_total = b.total == 0.0f ? 0.0f : b.total * expf(b.best - best);
    return {best, a_total + b_total};
}

// Merge the stats of all threads; every thread receives the result.
static __device__ Stats merge_block(Stats mine) {
    __shared__ Stats per_warp[MAX_THREADS / WARP];
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        mine = merge(mine, {__shfl_xor_sync(ALL_LANES, mine.best, lanes),
                            __shfl_xor_sync(ALL_LANES, mine.total, lanes)});
    if (threadIdx.x % WARP == 0) per_warp[threadIdx.x / WARP] = mine;
    __syncthreads();
    mine = per_warp[0];
    for (int warp = 1; warp < blockDim.x / WARP; ++warp) mine = merge(mine, per_warp[warp]);
    return mine;
}

template <typename T>
__global__ void __launch_bounds__(MAX_THREADS) softmax(const T* x, T* out, int columns) {
    constexpr int SIZE = Vec<T>::SIZE;
    const T* from = x + (size_t)blockIdx.x * columns;
    T* to = out + (size_t)blockIdx.x * columns;
    bool wide = (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 16 == 0;
    int whole = wide ? columns / SIZE * SIZE : 0;

    Stats mine{-INFINITY, 0.0f};
#pragma unroll 2
    for (int i = threadIdx.x * SIZE; i < whole; i += blockDim.x * SIZE) {
        Vec<T> chunk = load16(from + i);
        float best = -INFINITY, total = 0.0f;
        for (int k = 0; k < SIZE; ++k) best = fmaxf(best, to_float(chunk[k]));
        for (int k = 0; k < SIZE; ++k) total += expf(to_float(chunk[k]) - finite(best));
        mine = merge(mine, {best, total});
    }
    for (int i = whole + threadIdx.x; i < columns; i += blockDim.x)
        mine = merge(mine, {to_float(from[i]), to_float(from[i]) == -INFINITY ? 0.0f : 1.0f});
    Stats all = merge_block(mine);

    float best = finite(all.best), scale = all.total == 0.0f ? 0.0f : 1.0f / all.total;
    for (int i = threadIdx.x * SIZE; i < whole; i += blockDim.x * SIZE) {
        Vec<T> chunk = load16(from + i);
        for (int k = 0; k < SIZE; ++k)
            chunk[k] = from_float<T>(expf(to_float(chunk[k]) - best) * scale);
        store16(to + i, chunk);
    }
    for (int i = whole + threadIdx.x; i < columns; i += blockDim.x)
        to[i] = from_float<T>(expf(to_float(from[i]) - best) * scale);
}

template <typename T>
static cudaError_t launch(const T* x, T* out, int rows, int columns, cudaStream_t stream) {
    if (rows == 0 || columns == 0) return cudaSuccess;
    int chunks = ceil_div(columns, Vec<T>::SIZE);
    int threads = min(ceil_div(chunks, WARP) * WARP, MAX_THREADS);
    softmax<<<rows, threads, 0, stream>>>(x, out, columns);
    return cudaGetLastError();
}

extern "C" cudaError_t softmax_f32(const float* x, float* out, int rows, int columns,
                                   cudaStream_t stream) {
    return launch(x, out, rows, columns, stream);
}
extern "C" cudaError_t softmax_f16(const __half* x, __half* out, int rows, int columns,
                                   cudaStream_t stream) {
    return launch(x, out, rows, columns, stream);
}
extern "C" cudaError_t softmax_bf16(const __nv_bfloat16* x, __nv_bfloat16* out, int rows,
                                    int columns, cudaStream_t stream) {
    return launch(x, out, rows, columns, stream);
}
