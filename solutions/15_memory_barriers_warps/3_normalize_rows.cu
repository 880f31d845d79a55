// Solution of exercise 15.3: A total by shuffles, known to every thread.
//
// Divide each row by its sum. The rows are shared out as in exercise 15.2, and there are whole
// warps: the number of threads is a multiple of 32. Add up a warp's sums by shuffles, bring the
// warps' sums together in `per_warp`, and make sure that every thread of the thread block knows the
// total, since each has columns to divide.
//
// Generated from normalize_rows in csrc/reduce/normalize_rows.cu.
// Edit it there, and run `python -m yaie.course build`.

// Divide each row by its sum, as a sampler does after it has dropped tokens: warp shuffles.
//
// Computes  out[r][c] = x[r][c] / Σ x[r][k] over k, with the sum in float32
// Shapes    x and out [rows, columns], float32, float16 or bfloat16; the caller chooses the number
//           of thread blocks and the number of threads per thread block, a multiple of 32 up to
//           1024
// Owns      each thread block: rows blockIdx.x, blockIdx.x + gridDim.x, …; each thread: columns
//           threadIdx.x, threadIdx.x + blockDim.x, … of each of these rows
// Moves     every element in once and out once; the second read of a row hits a cache
// Oracle    x / x.sum(-1, keepdim=True) in float64, in tests/test_kernels.py
// Idea      the lanes of a warp read each other's registers. Five exchanges give every lane the sum
//           of its warp, without a barrier; only one value per warp goes through shared memory.
//           (common.cuh has the exchanges, which recur in many kernels, as warp_sum.)
#include "common.cuh"

template <typename T>
__global__ void normalize_rows(const T* x, T* out, int rows, int columns) {
    __shared__ float per_warp[32];  // at most 1024 threads, so at most 32 warps
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    // exercise 15.3 begin: each row of this thread block: its sum by shuffles, the quotients
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = x + (size_t)row * columns;
        float sum = 0.0f;
        for (int column = threadIdx.x; column < columns; column += blockDim.x) {
            sum += to_float(from[column]);
        }
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, step);

        if (lane == 0) per_warp[warp] = sum;
        __syncthreads();
        float total = lane < warps ? per_warp[lane] : 0.0f;
        for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(ALL_LANES, total, step);
        __syncthreads();  // wait until per_warp is read: the next row overwrites it

        for (int column = threadIdx.x; column < columns; column += blockDim.x) {
            float value = to_float(from[column]);
            out[(size_t)row * columns + column] = from_float<T>(value / total);
        }
    }
    // exercise 15.3 end
}

template <typename T>
static cudaError_t launch(const T* x, T* out, int rows, int columns, int blocks, int threads,
                          cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    normalize_rows<<<blocks, threads, 0, stream>>>(x, out, rows, columns);
    return cudaGetLastError();
}

extern "C" cudaError_t normalize_rows_f32(const float* x, float* out, int rows, int columns,
                                          int blocks, int threads, cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t normalize_rows_f16(const __half* x, __half* out, int rows, int columns,
                                          int blocks, int threads, cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t normalize_rows_bf16(const __nv_bfloat16* x, __nv_bfloat16* out, int rows,
                                           int columns, int blocks, int threads,
                                           cudaStream_t stream) {
    return launch(x, out, rows, columns, blocks, threads, stream);
}
