// A loop of the CPU over pointers of the GPU.
// EXPECT = "is the sum computed by the launcher?"
#include <cuda_runtime.h>

constexpr int THREADS = 256;  // of a thread block

__global__ void vector_add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

extern "C" cudaError_t vector_add_scalar_f32(const float* x, const float* y, float* out, int n,
                                             cudaStream_t stream) {
    if (n == 0) return cudaSuccess;  // a grid without thread blocks would be refused
    int thread_blocks = (n + THREADS - 1) / THREADS;
    for (int i = 0; i < n; ++i) out[i] = x[i] + y[i];
    return cudaGetLastError();
}
