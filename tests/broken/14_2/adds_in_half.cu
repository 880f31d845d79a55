// The sum is kept in the dtype of x.
// EXPECT = "stops at 2,048"
#include "common.cuh"

template <typename T>
__global__ void row_sum_shared(const T* x, float* out, int rows, int columns) {
    extern __shared__ float partial[];  // a place for each thread
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        T sum = from_float<T>(0.0f);
        for (int column = threadIdx.x; column < columns; column += blockDim.x) {
            sum = from_float<T>(to_float(sum) + to_float(x[(size_t)row * columns + column]));
        }
        partial[threadIdx.x] = to_float(sum);
        __syncthreads();
        for (int count = blockDim.x; count > 1;) {
            int half = (count + 1) / 2;  // of an odd count the middle one waits
            if (threadIdx.x + half < count) partial[threadIdx.x] += partial[threadIdx.x + half];
            __syncthreads();
            count = half;
        }
        if (threadIdx.x == 0) out[row] = partial[0];
    }
}

template <typename T>
static cudaError_t launch(const T* x, float* out, int rows, int columns, int blocks, int threads,
                          cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    row_sum_shared<<<blocks, threads, threads * sizeof(float), stream>>>(x, out, rows, columns);
    return cudaGetLastError();
}

extern "C" cudaError_t row_sum_shared_f32(const float* x, float* out, int rows, int columns,
                                          int blocks, int threads, cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t row_sum_shared_f16(const __half* x, float* out, int rows, int columns,
                                          int blocks, int threads, cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t row_sum_shared_bf16(const __nv_bfloat16* x, float* out, int rows,
                                           int columns, int blocks, int threads,
                                           cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
