// RMSNorm, rung 2 of 2: the row stays in registers; the kernel that the engine uses.
//
// Computes  out[r][c] = x[r][c] / √(mean of x[r]² + eps) × weight[c], in float32, rounded once.
//           add_rms_norm first sets total = x + residual, rounded, and normalizes total.
// Shapes    x, residual, total and out [rows, size], weight [size]: float32, float16 or bfloat16
// Owns      each thread block: a row, or several rows of up to 512 bytes, one per warp. Each
//           thread: VECS chunks of a row, 16 bytes each, blockDim.x chunks apart.
// Moves     x in once, out once, weight once: (2 × rows + 1) × size × element size; with a residual
//           (4 × rows + 1) × size × element size
// Oracle    the formula in float64, in tests/test_kernels.py
// Idea      a row is needed twice, for its mean and for its result. A thread's chunks fit in its
//           registers, so they are read once, by 16-byte loads that are all in flight together. With
//           few rows, those of the residual and the weights join them. A row that is too long,
//           or does not begin at a multiple of 16, is read twice, element by element.
#include "follow.cuh"
#include "norm/row_sum.cuh"

constexpr int FEW_BLOCKS = 512;  // about 4 per SM

template <typename T>
static __device__ float square(T x) {
    return to_float(x) * to_float(x);
}

template <typename T, int VECS, bool EARLY>
__global__ void rms_norm(const T* x, const T* residual, const T* weight, T* out, T* total,
                         int rows, int size, float eps) {
    let_next_begin();
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    size_t start = (size_t)row * size;
    int first = threadIdx.x * Vec<T>::SIZE, step = blockDim.x * Vec<T>::SIZE;  // columns
    if (gridDim.x == 1) {  // a lone block is latency-bound: prefetch weights before the wait
#pragma unroll 1
        for (int column = first; column < size; column += step)
            asm volatile("prefetch.global.L2 [%0];\n" ::"l"(weight + column));
    }
    wait_for_last();
    if (row >= rows) return;  // a whole warp returns; with one warp per row there is no barrier

    auto for_each_chunk = [&](auto work) {
        for (int v = 0, column = first; v < VECS && column < size; ++v, column += step)
            work(v, column);
    };
    // The compiler moves no load ahead of a store, which might write what the load reads. So if
    // EARLY, all loads come first. They take registers, which many rows need for more threads.
    // The early ones are kept as bits: the compiler unpacks a Vec where it is loaded, and waits.
    Vec<T> kept[VECS];
    uint4 others[VECS], weights[VECS];
    auto bits = [](const T* from) { return *reinterpret_cast<const uint4*>(from); };
    auto vec = [](const uint4& bits) { return reinterpret_cast<const Vec<T>&>(bits); };
    for_each_chunk([&](int v, int column) { kept[v] = load16(x + start + column); });
    if (EARLY) {
        for_each_chunk([&](int v, int column) {
            if (residual) others[v] = bits(residual + start + column);
            weights[v] = bits(weight + column);
        });
    }
    if (residual) {
        for_each_chunk([&](int v, int column) {
            Vec<T> other = EARLY ? vec(others[v]) : load16(residual + start + column);
            for (int k = 0; k < Vec<T>::SIZE; ++k)
                kept[v][k] = from_float<T>(to_float(kept[v][k]) + to_float(other[k]));
            store16(total + start + column, kept[v]);
        });
    }

    float sum = 0.0f;
    for_each_chunk([&](int v, int) {
        for (int k = 0; k < Vec<T>::SIZE; ++k) sum += square(kept[v][k]);
    });
    float scale = rsqrtf(row_sum(sum) / size + eps);

    for_each_chunk([&](int v, int column) {
        Vec<T> gain = EARLY ? vec(weights[v]) : load16(weight + column);
        for (int k = 0; k < Vec<T>::SIZE; ++k)
            kept[v][k] = from_float<T>(to_float(kept[v][k]) * scale * to_float(gain[k]));
        store16(out + start + column, kept[v]);
    });
}

// Any size and any address, element by element; the second read of a row hits a cache.
template <typename T>
__global__ void rms_norm_by_elements(const T* x, const T* residual, const T* weight, T* out,
                                     T* total, int size, float eps) {
    let_next_begin();
    wait_for_last();
    size_t start = (size_t)blockIdx.x * size, end = start + size;
    if (residual) {
        for (size_t i = start + threadIdx.x; i < end; i += blockDim.x)
            total[i] = from_float<T>(to_float(x[i]) + to_float(residual[i]));
        x = total;  // each thread reads only what it wrote
    }
    float sum = 0.0f;
    for (size_t i = start + threadIdx.x; i < end; i += blockDim.x) sum += square(x[i]);
    float scale = rsqrtf(row_sum(sum) / size + eps);
    for (size_t i = start + threadIdx.x; i < end; i += blockDim.x)
        out[i] = from_float<T>(to_float(x[i]) * scale * to_float(weight[i - start]));
}

template <typename T>
static cudaError_t launch(const T* x, const T* residual, const T* weight, T* out, T* total,
                          int rows, int size, float eps, cudaStream_t stream) {
    if (rows == 0 || size == 0) return cudaSuccess;
    int vecs = size / Vec<T>::SIZE;  // per row
    bool wide = size % Vec<T>::SIZE == 0 && aligned16(x, residual, weight, out, total);
    if (!wide || vecs > 4 * MAX_THREADS) {
        int threads = min(ceil_div(size, WARP) * WARP, MAX_THREADS);
        return launch_behind(rms_norm_by_elements<T>, rows, threads, 0, stream, x, residual, weight,
                             out, total, size, eps);
    }
    // More chunks per thread mean more loads in flight and fewer warps to synchronize.
    int vecs_each = vecs <= 128 ? 1 : vecs <= 1024 ? 2 : 4;
    int threads = ceil_div(ceil_div(vecs, vecs_each), WARP) * WARP;  // per row
    int rows_each = threads == WARP ? 4 : 1;                         // per thread block
    int blocks = ceil_div(rows, rows_each);
    bool early = blocks <= FEW_BLOCKS;
    auto kernel = rms_norm<T, 4, false>;
    if (vecs_each == 1) kernel = early ? rms_norm<T, 1, true> : rms_norm<T, 1, false>;
    if (vecs_each == 2) kernel = early ? rms_norm<T, 2, true> : rms_norm<T, 2, false>;
    return launch_behind(kernel, blocks, dim3(threads, rows_each), 0, stream, x, residual, weight,
                         out, total, rows, size, eps);
}

extern "C" cudaError_t rms_norm_f32(const float* x, const float* weight, float* out, int rows,
                                    int size, float eps, cudaStream_t stream) {
    return launch<float>(x, nullptr, weight, out, nullptr, rows, size, eps, stream);
}
extern "C" cudaError_t rms_norm_f16(const __half* x, const __half* weight, __half* out, int rows,
                                    int size, float eps, cudaStream_t stream) {
    return launch<__half>(x, nullptr, weight, out, nullptr, rows, size, eps, stream);
}
extern "C" cudaError_t rms_norm_bf16(const __nv_bfloat16* x, const __nv_bfloat16* weight,
                                     __nv_bfloat16* out, int rows, int size, float eps,
                                     cudaStream_t stream) {
    return launch<__nv_bfloat16>(x, nullptr, weight, out, nullptr, rows, size, eps, stream);
}
extern "C" cudaError_t add_rms_norm_f32(const float* x, const float* residual,
                                        const float* weight, float* out, float* total, int rows,
                                        int size, float eps, cudaStream_t stream) {
    return launch(x, residual, weight, out, total, rows, size, eps, stream);
}
extern "C" cudaError_t add_rms_norm_f16(const __half* x, const __half* residual,
                                        const __half* weight, __half* out, __half* total,
                                        int rows, int size, float eps, cudaStream_t stream) {
    return launch(x, residual, weight, out, total, rows, size, eps, stream);
}
extern "C" cudaError_t add_rms_norm_bf16(const __nv_bfloat16* x, const __nv_bfloat16* residual,
                                         const __nv_bfloat16* weight, __nv_bfloat16* out,
                                         __nv_bfloat16* total, int rows, int size, float eps,
                                         cudaStream_t stream) {
    return launch(x, residual, weight, out, total, rows, size, eps, stream);
}
