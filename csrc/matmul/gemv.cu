// A matrix times a vector: the products of a single token, which read each weight once.
//
// Needs     sm_80 (cp.async)
// Computes  out[r] = Σ over k of weight[r][k] × x[k], plus bias[r] unless bias is null, in float32,
//           rounded once
//           norm_gemv: the same for the RMSNorm of total = x + residual, rounded, or of x if
//           residual and total are null: total[k] / √(mean of total² + eps) × norm[k], rounded
//           norm_gemv, gated: weight has the gates' rows before the ups'; out[r] is
//           silu(gate) × up of rows r and rows + r
// Shapes    x, residual, norm and total [size], weight [rows, size], or [2 × rows, size] if gated,
//           of fewer than 2^31 elements; bias one per row of it, out [rows]; float16 or bfloat16.
//           size must be a multiple of 8, all but bias and out aligned to 16 bytes, or the
//           launchers return cudaErrorMisalignedAddress. The kernel that runs before it must not
//           write weights or residual
// Owns      each warp: every n-th row or pair of rows, where n is the number of warps; each lane:
//           every 32nd 16-byte chunk of such a row. With a norm, each thread block normalizes all
//           of x for itself, and the first writes total
// Moves     weight once: 2 bytes per element; x from the L1 cache for each row, or with a norm from
//           shared memory
// Compiled  for sm_80 and sm_90 at most 38 registers per thread, with a norm 32 and 2 more that are
//           spilled (ptxas 13.0)
// Oracle    the formulas in float64, in tests/test_kernels.py
// Idea      the time is that of reading the weights, so loads must be in flight all the time:
//           - Each lane keeps AHEAD chunks in flight. When it has used one, it loads the next into
//             the same registers, even across the ends of rows. Weights bypass the L1 cache, which
//             keeps x.
//           - The thread blocks start while the kernel that computes x still runs (follow.cuh), and
//             load their first chunks before they wait: that kernel does not write weights.
//           - The memory is idle between two kernels, so even a short kernel costs time. The norm
//             before a product and the activation after it are therefore part of its kernel. 528
//             thread blocks normalize the same 8 KiB in less time than one block and a launch.
//           - There is one wave of thread blocks. Its warps take rows in turns, so every
//             multiprocessor gets about as many rows.
#include "follow.cuh"
#include "mma.cuh"
#include "norm/row_sum.cuh"

constexpr int THREADS = 512, WARPS = THREADS / WARP;

// Thread blocks per multiprocessor, and chunks per lane that are in flight. A norm leaves fewer
// registers for chunks.
template <bool NORMED>
constexpr int EACH = NORMED ? 4 : 3;
template <bool NORMED>
constexpr int HELD = NORMED ? 2 : 3;

// The vector to multiply: x, or the norm of x + residual.
template <typename T>
struct Token {
    const T *x, *residual, *norm;
    T* total;
    float eps;
};

// Load 16 bytes that are used once, bypassing the L1 cache.
template <typename T>
static __device__ uint4 load16_once(const T* from) {
    uint4 bits;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(from));
    return bits;
}

// Normalize x + residual into shared memory, where residual and the norm's weights are already.
template <typename T>
static __device__ void normalize(const Token<T>& token, T* shared, int size) {
    constexpr int STEP = THREADS * Vec<T>::SIZE;
    int first = threadIdx.x * Vec<T>::SIZE;
    float sum = 0.0f;
    for (int i = first; i < size; i += STEP) {
        Vec<T> x = load16(token.x + i);
        if (token.residual) {
            Vec<T> other = load16(shared + i);
            for (int k = 0; k < Vec<T>::SIZE; ++k)
                x[k] = from_float<T>(to_float(x[k]) + to_float(other[k]));
            if (blockIdx.x == 0) store16(token.total + i, x);
        }
        for (int k = 0; k < Vec<T>::SIZE; ++k) sum += to_float(x[k]) * to_float(x[k]);
        store16(shared + i, x);
    }
    float scale = rsqrtf(row_sum(sum) / size + token.eps);
    for (int i = first; i < size; i += STEP) {
        Vec<T> x = load16(shared + i), weights = load16(shared + size + i);
        for (int k = 0; k < Vec<T>::SIZE; ++k)
            x[k] = from_float<T>(to_float(x[k]) * scale * to_float(weights[k]));
        store16(shared + i, x);
    }
    __syncthreads();
}

static __device__ float silu(float x) { return x / (1.0f + expf(-x)); }

template <typename T, bool NORMED, bool GATED>
__global__ void __launch_bounds__(THREADS, EACH<NORMED>)
    gemv(const Token<T> token, const T* weight, const T* bias, T* out, int rows, int size) {
    extern __shared__ __align__(16) unsigned char memory[];
    T* shared = reinterpret_cast<T*>(memory);
    constexpr int CHUNK = Vec<T>::SIZE, AHEAD = HELD<NORMED>, PARTS = GATED ? 2 : 1;
    int warps = gridDim.x * WARPS, first_row = threadIdx.x / WARP * gridDim.x + blockIdx.x;
    int lane = threadIdx.x % WARP, chunks = size / CHUNK;

    uint4 held[AHEAD];
    int next_row = first_row, next = 0, start = first_row * size;  // of the next loads
    bool is_up = false;
    auto load = [&](int i) {
        int chunk = next + i * WARP + lane;
        bool inside = next_row < rows && chunk < chunks;
        held[i] = inside ? load16_once(weight + start + chunk * CHUNK) : uint4{};
    };
    auto go_on = [&] {
        next += AHEAD * WARP;
        if (next >= chunks) {
            next = 0;
            if (GATED) is_up = !is_up;
            if (!is_up) next_row += warps;
            start = (is_up ? rows + next_row : next_row) * size;
        }
    };
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) load(i);
    go_on();
    if (NORMED) {
        for (int i = threadIdx.x * CHUNK; i < size; i += THREADS * CHUNK) {
            if (token.residual) cp_async_16(shared + i, token.residual + i, true);
            cp_async_16(shared + size + i, token.norm + i, true);
        }
        cp_async_commit();
    }

    wait_for_last();  // now x is complete
    if (NORMED) {
        cp_async_wait<0>();  // each thread reads what it has copied itself
        normalize(token, shared, size);
    }
    const T* x = NORMED ? shared : token.x;
    for (int row = first_row; row < rows; row += warps) {
        float sums[PARTS];
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            float sum = 0.0f;
            for (int begin = 0; begin < chunks; begin += AHEAD * WARP) {
#pragma unroll
                for (int i = 0; i < AHEAD; ++i) {
                    int chunk = begin + i * WARP + lane;
                    if (chunk < chunks) {
                        Vec<T> factors = load16(x + chunk * CHUNK);
                        const Vec<T>& weights = reinterpret_cast<const Vec<T>&>(held[i]);
                        for (int k = 0; k < CHUNK; ++k)
                            sum += to_float(weights[k]) * to_float(factors[k]);
                    }
                    load(i);
                }
                go_on();
            }
            sum = warp_sum(sum);
            sums[part] = bias ? sum + to_float(bias[part * rows + row]) : sum;
        }
        if (lane > 0) continue;
        out[row] = from_float<T>(GATED ? silu(sums[0]) * sums[PARTS - 1] : sums[0]);
    }
    let_next_begin();  // any earlier, the next kernel's loads would compete with these
}

template <bool NORMED, bool GATED, typename T>
static cudaError_t launch(const Token<T>& token, const T* weight, const T* bias, T* out, int rows,
                          int size, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    bool aligned = aligned16(token.x, token.residual, token.norm, token.total, weight);
    if (size % Vec<T>::SIZE || !aligned) return cudaErrorMisalignedAddress;
    int device = 0, multiprocessors = 0, threads = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device);
    int wave = multiprocessors * min(EACH<NORMED>, threads / THREADS);
    int thread_blocks = min(ceil_div(rows, WARPS), wave);
    auto kernel = gemv<T, NORMED, GATED>;
    int bytes = NORMED ? 2 * size * sizeof(T) : 0;  // of shared memory: residual and norm
    if (bytes > 47 << 10)  // with row_sum's part more than 48 KiB, the default limit
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return launch_behind(kernel, thread_blocks, THREADS, bytes, stream, token, weight, bias, out,
                         rows, size);
}

extern "C" cudaError_t gemv_f16(const __half* x, const __half* weight, const __half* bias,
                                __half* out, int rows, int size, cudaStream_t stream) {
    return launch<false, false, __half>({x}, weight, bias, out, rows, size, stream);
}
extern "C" cudaError_t gemv_bf16(const __nv_bfloat16* x, const __nv_bfloat16* weight,
                                 const __nv_bfloat16* bias, __nv_bfloat16* out, int rows, int size,
                                 cudaStream_t stream) {
    return launch<false, false, __nv_bfloat16>({x}, weight, bias, out, rows, size, stream);
}
extern "C" cudaError_t norm_gemv_f16(const __half* x, const __half* residual, const __half* norm,
                                     const __half* weight, const __half* bias, __half* out,
                                     __half* total, int rows, int size, int gated, float eps,
                                     cudaStream_t stream) {
    auto product = gated ? launch<true, true, __half> : launch<true, false, __half>;
    return product({x, residual, norm, total, eps}, weight, bias, out, rows, size, stream);
}
extern "C" cudaError_t norm_gemv_bf16(const __nv_bfloat16* x, const __nv_bfloat16* residual,
                                      const __nv_bfloat16* norm, const __nv_bfloat16* weight,
                                      const __nv_bfloat16* bias, __nv_bfloat16* out,
                                      __nv_bfloat16* total, int rows, int size, int gated,
                                      float eps, cudaStream_t stream) {
    auto product = gated ? launch<true, true, __nv_bfloat16> : launch<true, false, __nv_bfloat16>;
    return product({x, residual, norm, total, eps}, weight, bias, out, rows, size, stream);
}
