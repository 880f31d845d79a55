// Exercise 21.2: Draw by a maximum: Gumbel-max.
// Your part begins in line 57 of this file.
//
// Write to tokens[row] the token with the largest score of the row, of equal scores the first, and
// −1 if nothing is above −inf. Begin with Best best{-INFINITY, -1}. A score is a token's logit +
// temperature[row] × noise, with noise = −log(−log(u)) and u = ((random_bits(seed[row], step[row],
// id) >> 9) + 0.5) × 2^−23. The threads of the thread block, whole warps, share the tokens of the
// row at `from`.
//
// You have
// - `from`, `size`: the row of logits, of type T, and how many
// - `temperature`, `seed`, `step`, `tokens`: a float, and three int64, per row
// - `random_bits(seed, step, id)`: returns 32 random bits, `uint32_t`, the same for the same three
//   numbers
// - `Best`: a struct of `float score` and `int token`
// - `better(a, b)`: returns the larger of two, of equal scores the first token; token -1 loses
// - `per_warp`: `Best` in shared memory, a place for each warp
// - `warp`, `lane`, `warps`, `WARP`: of this thread; how many warps there are; 32
// - `__shfl_xor_sync(ALL_LANES, value, step)`: returns the `value` of lane `lane ^ step`, a number,
//   not a struct
// - `to_float(value)`, `logf(x)`, `0x1p-23f`, `__syncthreads()`: a T as a float; the natural
//   logarithm; 2^−23; all threads meet
//
// In a terminal: yaie check 21.2, yaie hint 21.2, yaie reset 21.2.

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
        // your lines
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
