// Row sums, rung 1 of 2: a tree in shared memory.
//
// Computes  out[r] = Σ x[r][c] over c, in float32
// Shapes    x [rows, columns], float32, float16 or bfloat16; out [rows]; the caller chooses the
//           number of thread blocks and the number of threads per thread block, from 1 to 1024
// Owns      each thread block: rows blockIdx.x, blockIdx.x + gridDim.x, …; each thread: columns
//           threadIdx.x, threadIdx.x + blockDim.x, … of each of these rows
// Moves     every element once: rows × columns × element size
// Oracle    x.double().sum(-1), in tests/test_kernels.py
// Idea      the threads put their partial sums in shared memory. Each step adds the upper half of
//           them to the lower half, so 256 sums become one in 8 steps, with a barrier after each.
#include "common.cuh"

template <typename T>
__global__ void row_sum_shared(const T* x, float* out, int rows, int columns) {
    extern __shared__ float partial[];  // one sum per thread
    // exercise 15.2 begin: each row of this thread block: its sum, by a tree
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        float sum = 0.0f;
        for (int column = threadIdx.x; column < columns; column += blockDim.x) {
            sum += to_float(x[(size_t)row * columns + column]);
        }
        partial[threadIdx.x] = sum;
        __syncthreads();
        for (int count = blockDim.x; count > 1;) {
            int half = (count + 1) / 2;  // if count is odd, the middle sum stays
            if (threadIdx.x + half < count) partial[threadIdx.x] += partial[threadIdx.x + half];
            __syncthreads();
            count = half;
        }
        if (threadIdx.x == 0) out[row] = partial[0];
    }
    // exercise 15.2 end
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
