// The fourth member is added from the third.
// EXPECT = "look at the member w"
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS = 256;  // of a thread block

__global__ void vector_add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

__global__ void vector_add_float4(const float* x, const float* y, float* out, int n) {
    int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (first + 4 <= n) {
        float4 a = *reinterpret_cast<const float4*>(x + first);
        float4 b = *reinterpret_cast<const float4*>(y + first);
        float4 sum = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.z + b.z);
        *reinterpret_cast<float4*>(out + first) = sum;
    } else {
        for (int i = first; i < n; ++i) out[i] = x[i] + y[i];
    }
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

extern "C" cudaError_t vector_add_float4_f32(const float* x, const float* y, float* out, int n,
                                             cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    if (is_aligned(x) && is_aligned(y) && is_aligned(out)) {
        int thread_blocks = (n + 4 * THREADS - 1) / (4 * THREADS);
        vector_add_float4<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n);
    } else {
        int thread_blocks = (n + THREADS - 1) / THREADS;
        vector_add<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n);
    }
    return cudaGetLastError();
}
