// The number of thread blocks does not follow from n.
// EXPECT = "the grid has too few thread blocks."
#include <cuda_runtime.h>

constexpr int THREADS = 256;  // of a thread block

__global__ void vector_add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

extern "C" cudaError_t vector_add_scalar_f32(const float* x, const float* y, float* out, int n,
                                             cudaStream_t stream) {
    if (n == 0) return cudaSuccess;  // a grid without thread blocks would be refused
    int thread_blocks = 8;
    vector_add<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}
