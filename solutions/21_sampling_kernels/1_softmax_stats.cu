// Solution of exercise 21.1: Maximum and sum of a row in one pass.
//
// Write the maximum of each row to best[row], and the sum of exp(x − maximum) to total[row], reading
// the row once. `from` is the row; the threads of the thread block, whole warps, share its columns.
//
// Generated from softmax_stats in csrc/sampling/softmax_stats.cu.
// Edit it there, and run `python -m yaie.course build`.

// The maximum and the sum that a softmax needs of each row, in one pass.
//
// Computes  best[r] = max of x[r] and total[r] = Σ exp(x[r][c] − best[r]) over c, in float32; −inf
//           and 0 for a row with nothing above −inf
// Shapes    x [rows, columns], float32, float16 or bfloat16; best and total [rows]; the caller
//           chooses the number of thread blocks and the number of threads per thread block, a
//           multiple of 32 up to 1024
// Owns      each thread block: rows blockIdx.x, blockIdx.x + gridDim.x, …; each thread: columns
//           threadIdx.x, threadIdx.x + blockDim.x, … of each of these rows
// Moves     every element once: rows × columns × element size
// Oracle    amax and logsumexp in float64, in tests/test_sample.py
// Idea      each thread keeps a maximum and a sum relative to it, and rescales the sum when it
//           finds a larger maximum (notebook 07). Two such pairs merge into one, in any order: the
//           lanes of a warp merge theirs by shuffles, and the warps merge theirs through shared
//           memory.
#include "common.cuh"

struct Stats {
    float best, total;
};

// Turn a sum of exp(x − from) into a sum of exp(x − to); 0 if the sum is empty.
static __device__ float rescale(float total, float from, float to) {
    return from == -INFINITY ? 0.0f : total * expf(from - to);
}

template <typename T>
__global__ void softmax_stats(const T* x, float* best, float* total, int rows, int columns) {
    __shared__ Stats per_warp[32];  // at most 1024 threads, so at most 32 warps
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = x + (size_t)row * columns;
        // exercise 21.1 begin
        Stats mine{-INFINITY, 0.0f};
        for (int column = threadIdx.x; column < columns; column += blockDim.x) {
            float value = to_float(from[column]);
            if (value > mine.best) mine = {value, rescale(mine.total, mine.best, value) + 1.0f};
            else mine.total += rescale(1.0f, value, mine.best);
        }
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
            Stats other{__shfl_xor_sync(ALL_LANES, mine.best, lanes),
                        __shfl_xor_sync(ALL_LANES, mine.total, lanes)};
            float larger = fmaxf(mine.best, other.best);
            mine = {larger, rescale(mine.total, mine.best, larger) +
                                rescale(other.total, other.best, larger)};
        }
        if (lane == 0) per_warp[warp] = mine;
        __syncthreads();
        mine = {-INFINITY, 0.0f};
        for (int w = 0; w < warps; ++w) {
            float larger = fmaxf(mine.best, per_warp[w].best);
            mine = {larger, rescale(mine.total, mine.best, larger) +
                                rescale(per_warp[w].total, per_warp[w].best, larger)};
        }
        if (threadIdx.x == 0) best[row] = mine.best, total[row] = mine.total;
        // exercise 21.1 end
        __syncthreads();  // wait until per_warp is read: the next row overwrites it
    }
}

template <typename T>
static cudaError_t launch(const T* x, float* best, float* total, int rows, int columns, int blocks,
                          int threads, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    softmax_stats<<<blocks, threads, 0, stream>>>(x, best, total, rows, columns);
    return cudaGetLastError();
}

extern "C" cudaError_t softmax_stats_f32(const float* x, float* best, float* total,
                                         int rows, int columns, int blocks, int threads,
                                         cudaStream_t stream) {
    return launch(x, best, total, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t softmax_stats_f16(const __half* x, float* best, float* total,
                                         int rows, int columns, int blocks, int threads,
                                         cudaStream_t stream) {
    return launch(x, best, total, rows, columns, blocks, threads, stream);
}
extern "C" cudaError_t softmax_stats_bf16(const __nv_bfloat16* x, float* best, float* total,
                                          int rows, int columns, int blocks, int threads,
                                          cudaStream_t stream) {
    return launch(x, best, total, rows, columns, blocks, threads, stream);
}
