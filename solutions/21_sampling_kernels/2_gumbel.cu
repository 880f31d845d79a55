// Solution of exercise 21.2: Draw by a maximum: Gumbel-max.
//
// Write to tokens[row] the token with the largest score of the row, of equal scores the first, and
// −1 if nothing is above −inf. Begin with Best best{-INFINITY, -1}. A score is a token's logit +
// temperature[row] × noise, with noise = −log(−log(u)) and u = ((random_bits(seed[row], step[row],
// id) >> 9) + 0.5) × 2^−23. The threads of the thread block, whole warps, share the tokens of the
// row at `from`.
//
// Generated from gumbel_sample in csrc/sampling/gumbel.cu.
// Edit it there, and run `python -m yaie.course build`.

// Sample from softmax(logits / temperature) in one pass: Gumbel-max.
//
// Computes  tokens[r] = the token with the largest logits[r][token] + temperature[r] × noise, the
//           first of equals; noise = −log(−log(u)), with u drawn from seed[r], step[r] and the
//           token. A NaN is never chosen; −1 if a row has nothing above −inf.
// Shapes    logits [rows, size], float32, float16 or bfloat16; temperature float32, seed, step and
//           tokens int64, each [rows]; the caller chooses the number of thread blocks and the
//           number of threads per thread block, a multiple of 32 up to 1024
// Owns      each thread block: rows blockIdx.x, blockIdx.x + gridDim.x, …; each thread: columns
//           threadIdx.x, threadIdx.x + blockDim.x, … of each of these rows
// Moves     every logit once: rows × size × element size
// Reaches   236 µs for 256 × 128,256 float32 logits on an H200, where one read of them takes 30 µs:
//           each token computes four random words and uses one of them
// Oracle    yaie.course.lessons.ops.reference.sampling.gumbel_sample, and a chi-square test, in
//           tests/test_sample.py
// Idea      sampling becomes a maximum. Nothing is summed or normalized, so one pass is enough, and
//           the threads exchange nothing until the end. Each random number is computed from a
//           counter where it is needed, so a token's number is the same in every batch and with any
//           number of threads.
#include "common.cuh"
#include "sampling/philox.cuh"

struct Best {
    float score;
    int token;
};

// The larger score; of equal scores the first token. A token of −1 means none was found.
static __device__ Best better(Best a, Best b) {
    if (a.score == b.score) return (unsigned)a.token < (unsigned)b.token ? a : b;
    return a.score > b.score ? a : b;
}

template <typename T>
__global__ void gumbel_sample(const T* logits, const float* temperature, const int64_t* seed,
                              const int64_t* step, int64_t* tokens, int rows, int size) {
    __shared__ Best per_warp[32];  // at most 1024 threads, so at most 32 warps
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = logits + (size_t)row * size;
        // exercise 21.2 begin
        Best best{-INFINITY, -1};
        for (int id = threadIdx.x; id < size; id += blockDim.x) {
            // 23 bits: with more the 0.5 is rounded away, u can be 1, and its noise infinite.
            float u = ((random_bits(seed[row], step[row], id) >> 9) + 0.5f) * 0x1p-23f;
            float score = to_float(from[id]) - temperature[row] * logf(-logf(u));
            if (score > best.score) best = {score, id};
        }
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
            Best other{__shfl_xor_sync(ALL_LANES, best.score, lanes),
                       __shfl_xor_sync(ALL_LANES, best.token, lanes)};
            best = better(best, other);
        }
        if (lane == 0) per_warp[warp] = best;
        __syncthreads();
        for (int w = 0; w < warps; ++w) best = better(best, per_warp[w]);
        if (threadIdx.x == 0) tokens[row] = best.token;
        // exercise 21.2 end
        __syncthreads();  // wait until per_warp is read: the next row overwrites it
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
