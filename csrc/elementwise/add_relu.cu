// Fused addition and ReLU; the kernel that the engine uses.
//
// Computes  out[i] = max(x[i] + y[i], 0); NaN stays NaN
// Shapes    x, y and out [n], float32, float16 or bfloat16
// Owns      each thread: 16 bytes, which are 4 floats or 4 pairs of 16-bit elements; each thread
//           block: 256 times that
// Moves     each input once and the output once: 3 × n × element size. Two kernels, one for the sum
//           and one for the ReLU, would move 5 × n × element size.
// Oracle    torch.relu(x + y), equal in every element, in tests/test_kernels.py
// Idea      16-bit elements are added and compared in pairs, one instruction for two of them. The
//           sum is rounded as PyTorch rounds it, so the results are identical.
#include "common.cuh"

constexpr int THREADS = 256;

// The widest operand of one instruction: a float, or a pair of 16-bit elements.
template <typename T>
struct Unit { using type = T; };
template <>
struct Unit<__half> { using type = __half2; };
template <>
struct Unit<__nv_bfloat16> { using type = __nv_bfloat162; };

// A comparison rather than fmaxf, since fmaxf(NaN, 0) is 0.
__device__ __forceinline__ float add_relu(float x, float y) { return x + y < 0.0f ? 0.0f : x + y; }
__device__ __forceinline__ __half2 add_relu(__half2 x, __half2 y) {
    return __hmax2_nan(__hadd2(x, y), __float2half2_rn(0.0f));
}
__device__ __forceinline__ __nv_bfloat162 add_relu(__nv_bfloat162 x, __nv_bfloat162 y) {
    return __hmax2_nan(__hadd2(x, y), __float2bfloat162_rn(0.0f));
}

template <typename T>
__global__ void add_relu(const T* x, const T* y, T* out, int n, bool wide) {
    using U = typename Unit<T>::type;
    constexpr int SIZE = Vec<T>::SIZE;
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * SIZE;
    if (wide && first + SIZE <= n) {
        Vec<U> a = load16(reinterpret_cast<const U*>(x + first));
        Vec<U> b = load16(reinterpret_cast<const U*>(y + first));
        for (int k = 0; k < Vec<U>::SIZE; ++k) a[k] = add_relu(a[k], b[k]);
        store16(reinterpret_cast<U*>(out + first), a);
    } else {  // the tail of n, or every element if an address is not a multiple of 16
        for (int i = first; i < min(first + SIZE, n); ++i)
            out[i] = from_float<T>(add_relu(to_float(x[i]), to_float(y[i])));
    }
}

template <typename T>
static cudaError_t launch(const T* x, const T* y, T* out, int n, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    int elements = THREADS * Vec<T>::SIZE;  // per thread block
    bool wide = aligned16(x, y, out);
    add_relu<<<ceil_div(n, elements), THREADS, 0, stream>>>(x, y, out, n, wide);
    return cudaGetLastError();
}

extern "C" cudaError_t add_relu_f32(const float* x, const float* y, float* out, int n,
                                    cudaStream_t stream) {
    return launch(x, y, out, n, stream);
}
extern "C" cudaError_t add_relu_f16(const __half* x, const __half* y, __half* out, int n,
                                    cudaStream_t stream) {
    return launch(x, y, out, n, stream);
}
extern "C" cudaError_t add_relu_bf16(const __nv_bfloat16* x, const __nv_bfloat16* y,
                                     __nv_bfloat16* out, int n, cudaStream_t stream) {
    return launch(x, y, out, n, stream);
}
