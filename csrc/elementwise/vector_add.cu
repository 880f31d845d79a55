// Vector addition in every dtype: one element per thread, and 16 bytes per thread; the kernels that
// the engine uses.
//
// Computes  out[i] = x[i] + y[i]
// Shapes    x, y and out [n], float32, float16 or bfloat16
// Owns      vector_add, each thread: one element. vector_add_wide, each thread: 16 bytes, which are
//           4 floats or 8 elements of 16 bits. Both have 256 threads per thread block.
// Moves     each input once and the output once: 3 × n × element size
// Oracle    x + y in float64, in tests/test_kernels.py
// Idea      vector_add_wide requests the same bytes with a quarter or an eighth of the
//           instructions, so each thread has more bytes in flight. It needs addresses that are
//           multiples of 16.
#include "common.cuh"

constexpr int THREADS = 256;

template <typename T>
__global__ void vector_add(const T* x, const T* y, T* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = from_float<T>(to_float(x[i]) + to_float(y[i]));
}

template <typename T>
__global__ void vector_add_wide(const T* x, const T* y, T* out, int n) {
    constexpr int SIZE = Vec<T>::SIZE;
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * SIZE;
    if (first + SIZE <= n) {
        Vec<T> a = load16(x + first), b = load16(y + first), sum;
        for (int k = 0; k < SIZE; ++k) sum[k] = from_float<T>(to_float(a[k]) + to_float(b[k]));
        store16(out + first, sum);
    } else {  // the tail, if n is not a multiple of SIZE
        for (int i = first; i < n; ++i) out[i] = from_float<T>(to_float(x[i]) + to_float(y[i]));
    }
}

template <typename T>
static cudaError_t launch(const T* x, const T* y, T* out, int n, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    vector_add<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t launch_wide(const T* x, const T* y, T* out, int n, cudaStream_t stream) {
    if (!aligned16(x, y, out)) return launch(x, y, out, n, stream);
    if (n == 0) return cudaSuccess;
    int elements = THREADS * Vec<T>::SIZE;  // per thread block
    vector_add_wide<<<ceil_div(n, elements), THREADS, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}

extern "C" cudaError_t vector_add_f32(const float* x, const float* y, float* out, int n,
                                      cudaStream_t stream) {
    return launch(x, y, out, n, stream);
}
extern "C" cudaError_t vector_add_f16(const __half* x, const __half* y, __half* out, int n,
                                      cudaStream_t stream) {
    return launch(x, y, out, n, stream);
}
extern "C" cudaError_t vector_add_bf16(const __nv_bfloat16* x, const __nv_bfloat16* y,
                                       __nv_bfloat16* out, int n, cudaStream_t stream) {
    return launch(x, y, out, n, stream);
}

extern "C" cudaError_t vector_add_wide_f32(const float* x, const float* y, float* out, int n,
                                           cudaStream_t stream) {
    return launch_wide(x, y, out, n, stream);
}
extern "C" cudaError_t vector_add_wide_f16(const __half* x, const __half* y, __half* out, int n,
                                           cudaStream_t stream) {
    return launch_wide(x, y, out, n, stream);
}
extern "C" cudaError_t vector_add_wide_bf16(const __nv_bfloat16* x, const __nv_bfloat16* y,
                                            __nv_bfloat16* out, int n, cudaStream_t stream) {
    return launch_wide(x, y, out, n, stream);
}
