// A matrix times a vector: the products of a single token, which read each weight once.
//
// Computes  out[r] = Σ over k of weight[r][k] × x[k], plus bias[r] unless bias is null, in float32,
//           rounded once
// Shapes    weight [rows, size], x [size], bias and out [rows], float16 or bfloat16; size must be a
//           multiple of 8, weight and x aligned to 16 bytes, or the launchers return
//           cudaErrorMisalignedAddress. The kernel that runs before it must not write the weights
// Owns      each warp: every n-th row, where n is the number of warps; each lane: every 32nd
//           16-byte chunk of such a row
// Moves     weight once: rows × size × 2 bytes; x from the L1 cache for each row
// Compiled  at most 30 registers per thread, none spilled (ptxas 13.0)
// Oracle    weight.double() @ x.double(), in tests/test_kernels.py
// Idea      the time is that of reading the weights, so loads must be in flight all the time:
//           - Each lane keeps AHEAD chunks in flight. When it has used one, it loads the next into
//             the same registers, even across the ends of rows. Weights bypass the L1 cache, which
//             keeps x.
//           - The thread blocks start while the kernel that computes x still runs (follow.cuh), and
//             load their first chunks before they wait: that kernel does not write weights.
//           - There is one wave of thread blocks. Its warps take rows in turns, so every
//             multiprocessor gets about as many rows.
#include "common.cuh"
#include "follow.cuh"

constexpr int THREADS = 512, WARPS = THREADS / WARP;
constexpr int EACH = 4;   // thread blocks per multiprocessor
constexpr int AHEAD = 2;  // chunks per lane that are in flight

// Load 16 bytes that are used once, bypassing the L1 cache.
template <typename T>
static __device__ uint4 load16_once(const T* from) {
    uint4 bits;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(from));
    return bits;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    gemv(const T* x, const T* weight, const T* bias, T* out, int rows, int size) {
    constexpr int CHUNK = Vec<T>::SIZE;
    int warps = gridDim.x * WARPS, first_row = threadIdx.x / WARP * gridDim.x + blockIdx.x;
    int lane = threadIdx.x % WARP, chunks = size / CHUNK;

    uint4 held[AHEAD];
    int next_row = first_row, next = 0;  // row and chunk of the next loads
    auto load = [&](int i) {
        int chunk = next + i * WARP + lane;
        bool inside = next_row < rows && chunk < chunks;
        held[i] = inside ? load16_once(weight + (size_t)next_row * size + chunk * CHUNK) : uint4{};
    };
    auto go_on = [&] {
        next += AHEAD * WARP;
        if (next >= chunks) next = 0, next_row += warps;
    };
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) load(i);
    go_on();

    wait_for_last();  // now x is complete
    for (int row = first_row; row < rows; row += warps) {
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
        if (lane == 0) out[row] = from_float<T>(bias ? sum + to_float(bias[row]) : sum);
    }
    let_next_begin();  // any earlier, the next kernel's loads would compete with these
}

template <typename T>
static cudaError_t launch(const T* x, const T* weight, const T* bias, T* out, int rows, int size,
                          cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    if (size % Vec<T>::SIZE || !aligned16(x, weight)) return cudaErrorMisalignedAddress;
    int device = 0, multiprocessors = 0, threads = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device);
    int wave = multiprocessors * min(EACH, threads / THREADS);
    int thread_blocks = min(ceil_div(rows, WARPS), wave);
    return launch_behind(gemv<T>, thread_blocks, THREADS, 0, stream, x, weight, bias, out, rows,
                         size);
}

extern "C" cudaError_t gemv_f16(const __half* x, const __half* weight, const __half* bias,
                                __half* out, int rows, int size, cudaStream_t stream) {
    return launch(x, weight, bias, out, rows, size, stream);
}
extern "C" cudaError_t gemv_bf16(const __nv_bfloat16* x, const __nv_bfloat16* weight,
                                 const __nv_bfloat16* bias, __nv_bfloat16* out, int rows, int size,
                                 cudaStream_t stream) {
    return launch(x, weight, bias, out, rows, size, stream);
}
