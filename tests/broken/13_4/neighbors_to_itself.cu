// Every thread has a stretch of the vector.
// EXPECT = "Let the 32 threads of a warp take 32 neighbors"
#include <cuda_runtime.h>

constexpr int THREADS = 256;  // of a thread block

__global__ void vector_add(const float* x, const float* y, float* out, int n) {
    int threads = gridDim.x * blockDim.x, each = (n + threads - 1) / threads;
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * each;
    for (int i = first; i < first + each && i < n; ++i) {
        out[i] = x[i] + y[i];
    }
}

extern "C" cudaError_t vector_add_stride_f32(const float* x, const float* y, float* out, int n,
                                             int thread_blocks, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    vector_add<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}
