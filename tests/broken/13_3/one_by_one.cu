// Single numbers in place of pairs.
// EXPECT = "Read and write through pointers to __half2"
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS = 256;  // of a thread block

__global__ void add_relu(const __half* x, const __half* y, __half* out, int n) {
    int first = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (first + 2 <= n) {
        for (int i = first; i < first + 2; ++i)
            out[i] = __hmax_nan(__hadd(x[i], y[i]), __float2half(0.0f));
    } else if (first < n) {
        out[first] = __hmax_nan(__hadd(x[first], y[first]), __float2half(0.0f));
    }
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 4 == 0; }

extern "C" cudaError_t add_relu_half2_f16(const __half* x, const __half* y, __half* out, int n,
                                          cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    if (!is_aligned(x) || !is_aligned(y) || !is_aligned(out)) return cudaErrorMisalignedAddress;
    int thread_blocks = (n + 2 * THREADS - 1) / (2 * THREADS);
    add_relu<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}
