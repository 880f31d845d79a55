// All warps' lanes 0 write the token.
// EXPECT = "one is enough"
#include "common.cuh"
#include "sampling/philox.cuh"

struct Best {
    float score;
    int token;
};

// The larger score, of equals the first token. A row may have nothing to offer: then token is −1.
static __device__ Best better(Best a, Best b) {
    if (a.score == b.score) return (unsigned)a.token < (unsigned)b.token ? a : b;
    return a.score > b.score ? a : b;
}

template <typename T>
__global__ void gumbel_sample(const T* logits, const float* temperature, const int64_t* seed,
                              const int64_t* step, int64_t* tokens, int rows, int size) {
    __shared__ Best of_warp[32];  // at most 1024 threads are at most 32 warps
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = logits + (size_t)row * size;
        Best best{-INFINITY, -1};
        for (int id = threadIdx.x; id < size; id += blockDim.x) {
            // A bit more and the half would be rounded away: u could be 1, its noise infinite.
            float u = ((random_bits(seed[row], step[row], id) >> 9) + 0.5f) * 0x1p-23f;
            float score = to_float(from[id]) - temperature[row] * logf(-logf(u));
            if (score > best.score) best = {score, id};
        }
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
            Best other{__shfl_xor_sync(ALL_LANES, best.score, lanes),
                       __shfl_xor_sync(ALL_LANES, best.token, lanes)};
            best = better(best, other);
        }
        if (lane == 0) of_warp[warp] = best;
        __syncthreads();
        for (int w = 0; w < warps; ++w) best = better(best, of_warp[w]);
        if (lane == 0) tokens[row] = best.token;
        __syncthreads();  // of_warp has been read, the next row may write it
    }
}

template <typename T>
static cudaError_t launch(const T* logits, const float* temperature, const int64_t* seed,
                          const int64_t* step, int64_t* tokens, int rows, int size, int blocks,
                          int threads, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    gumbel_sample<<<blocks, threads, 0, stream>>>(logits, temperature, seed, step, tokens, rows,
                                                  size);
    return cudaGetLastError();
}

extern "C" cudaError_t gumbel_sample_f32(const float* logits, const float* temperature,
                                         const int64_t* seed, const int64_t* step, int64_t* tokens,
                                         int rows, int size, int blocks, int threads,
                                         cudaStream_t stream) {
    return launch(logits, temperature, seed, step, tokens, rows, size, blocks, threads, stream);
}
extern "C" cudaError_t gumbel_sample_f16(const __half* logits, const float* temperature,
                                         const int64_t* seed, const int64_t* step, int64_t* tokens,
                                         int rows, int size, int blocks, int threads,
                                         cudaStream_t stream) {
    return launch(logits, temperature, seed, step, tokens, rows, size, blocks, threads, stream);
}
extern "C" cudaError_t gumbel_sample_bf16(const __nv_bfloat16* logits, const float* temperature,
                                          const int64_t* seed, const int64_t* step, int64_t* tokens,
                                          int rows, int size, int blocks, int threads,
                                          cudaStream_t stream) {
    return launch(logits, temperature, seed, step, tokens, rows, size, blocks, threads, stream);
}
