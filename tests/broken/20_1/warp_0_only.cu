// The pairs of the other warps are never merged.
// EXPECT = "warp 0's columns"
#include "common.cuh"

struct Stats {
    float best, total;
};

// A sum of exp(x − from) as a sum of exp(x − to); 0 if there is nothing in it.
static __device__ float rescale(float total, float from, float to) {
    return from == -INFINITY ? 0.0f : total * expf(from - to);
}

template <typename T>
__global__ void softmax_stats(const T* x, float* best, float* total, int rows, int columns) {
    __shared__ Stats of_warp[32];  // at most 1024 threads are at most 32 warps
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = x + (size_t)row * columns;
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
        if (lane == 0) of_warp[warp] = mine;
        __syncthreads();
        mine = {-INFINITY, 0.0f};
        for (int w = 0; w < 1; ++w) {
            float larger = fmaxf(mine.best, of_warp[w].best);
            mine = {larger, rescale(mine.total, mine.best, larger) +
                                rescale(of_warp[w].total, of_warp[w].best, larger)};
        }
        if (threadIdx.x == 0) best[row] = mine.best, total[row] = mine.total;
        __syncthreads();  // of_warp has been read, the next row may write it
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
