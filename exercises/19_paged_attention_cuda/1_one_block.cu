// Exercise 19.1: The softmax of a thread block.
// Your parts begin in lines 68 and 82 of this file.
//
// The warps of the thread block have computed the scores of a chunk: `count` of them in `scores`.
// Turn them into weights exp(score − best), where best is the largest score of this chunk and of all
// before it, known to every thread. Update `best` and `total`, the sum of the weights so far, in
// every thread, and set `rescale` to the factor by which sums from before have to be multiplied.
// `max_of_warp` and `sum_of_warp` have one place for each of the WARPS warps. After the last chunk
// write `out[row * head_dim + d]` and `lse[row]` of `paged`: zeros and −INFINITY if there was no
// key.
//
// You have
// - `scores`, `count`: float in shared memory; the first `count` are this chunk's scores
// - `best`, `total`: float of each thread: −INFINITY and 0 at first, the same in all threads
// - `rescale`: float of each thread, to be set
// - `max_of_warp`, `sum_of_warp`: float in shared memory, a place for each of the WARPS warps
// - `warp`, `lane`, `THREADS`, `WARP`: of this thread; 128 threads, 32 lanes
// - `__shfl_xor_sync(ALL_LANES, x, step)`, `warp_sum(x)`: returns the `x` of lane `lane ^ step`;
//   returns the sum over the warp
// - `sums`, `head_dim`: float in shared memory, the sum of weight × value for each of the `head_dim`
//   elements, relative to `best`
// - `paged.out`, `paged.lse`, `row`: outputs, and this row in both; `from_float<T>(value)` rounds
// - `__syncthreads()`: all threads meet
//
// In a terminal: yaie check 19.1, yaie hint 19.1, yaie reset 19.1.

// Paged attention, rung 1 of 4: one thread block per query and query head.
//
// Computes  the attention of each query over the keys that it sees, and the log-sum-exp; see
//           paged.cuh
// Shapes    see paged.cuh; float32, float16 or bfloat16, any head_dim up to 4096
// Owns      each thread block: a query head of a query; each warp: every WARPS-th key of a chunk,
//           whose elements its lanes share; each thread: every THREADS-th element of the output
#include "paged/paged.cuh"

constexpr int THREADS = 128, WARPS = THREADS / WARP;
constexpr int CHUNK = 1024;  // keys whose scores shared memory holds at a time

template <typename T>
__global__ void paged_one_block(Paged<T> paged) {
    extern __shared__ float shared[];
    __shared__ float scores[CHUNK], max_of_warp[WARPS], sum_of_warp[WARPS];
    int head_dim = paged.head_dim, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int token = blockIdx.x, head = blockIdx.y;
    float* query = shared;            // [head_dim]
    float* sums = shared + head_dim;  // [head_dim], of weight × value, relative to `best`
    Context context = find_context(paged, token);
    int64_t row_size = (int64_t)paged.kv_heads * head_dim;  // all KV heads of a token
    const T* keys = paged.key_pool + head / paged.group() * head_dim;
    const T* values = paged.value_pool + head / paged.group() * head_dim;

    for (int d = threadIdx.x; d < head_dim; d += THREADS) {
        query[d] = to_float(paged.q[token * paged.q_stride + head * head_dim + d]);
        sums[d] = 0.0f;
    }
    __syncthreads();
    float best = -INFINITY, total = 0.0f;  // of the chunks so far; the same in every thread
    for (int first = 0; first < context.length; first += CHUNK) {
        int count = min(CHUNK, context.length - first);
        for (int i = warp; i < count; i += WARPS) {
            const T* key = keys + find_slot(context, first + i, paged.block_size) * row_size;
            float sum = 0.0f;
            for (int d = lane; d < head_dim; d += WARP) sum += query[d] * to_float(key[d]);
            sum = warp_sum(sum);
            if (lane == 0) scores[i] = sum * paged.scale;
        }
        float rescale = 1.0f;  // the factor for the sums of the chunks so far
        // exercise 19.1 begin: scores become weights exp(score − best); update best, total, rescale
        // your lines
        // exercise 19.1 end
        for (int d = threadIdx.x; d < head_dim; d += THREADS) {
            float sum = sums[d] * rescale;
            for (int i = 0; i < count; ++i) {
                int64_t slot = find_slot(context, first + i, paged.block_size);
                sum += scores[i] * to_float(values[slot * row_size + d]);
            }
            sums[d] = sum;
        }
        __syncthreads();  // wait until the weights are used: the next scores overwrite them
    }
    int64_t row = (int64_t)token * paged.heads + head;
    // exercise 19.1 begin: out[row * head_dim + d] and lse[row]; zeros and −INFINITY without keys
    // your lines
    // exercise 19.1 end
}

template <typename T>
static cudaError_t launch(const Paged<T>& paged, cudaStream_t stream) {
    if (paged.tokens == 0 || paged.heads == 0 || paged.head_dim == 0) return cudaSuccess;
    dim3 grid(paged.tokens, paged.heads);
    paged_one_block<<<grid, THREADS, 2 * paged.head_dim * sizeof(float), stream>>>(paged);
    return cudaGetLastError();
}

extern "C" cudaError_t paged_one_block_f32(
    const float* q, const float* key_pool, const float* value_pool, const int* block_tables,
    const int* context_lens, const int* cu_seqlens, float* out, float* lse, float scale, int tokens,
    int batch, int heads, int kv_heads, int head_dim, int block_size, int max_blocks,
    int64_t q_stride, cudaStream_t stream) {
    return launch<float>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out, lse,
                          scale, tokens, batch, heads, kv_heads, head_dim, block_size, max_blocks,
                          q_stride}, stream);
}
extern "C" cudaError_t paged_one_block_f16(
    const __half* q, const __half* key_pool, const __half* value_pool, const int* block_tables,
    const int* context_lens, const int* cu_seqlens, __half* out, float* lse, float scale,
    int tokens, int batch, int heads, int kv_heads, int head_dim, int block_size, int max_blocks,
    int64_t q_stride, cudaStream_t stream) {
    return launch<__half>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out,
                           lse, scale, tokens, batch, heads, kv_heads, head_dim, block_size,
                           max_blocks, q_stride}, stream);
}
extern "C" cudaError_t paged_one_block_bf16(
    const __nv_bfloat16* q, const __nv_bfloat16* key_pool, const __nv_bfloat16* value_pool,
    const int* block_tables, const int* context_lens, const int* cu_seqlens, __nv_bfloat16* out,
    float* lse, float scale, int tokens, int batch, int heads, int kv_heads, int head_dim,
    int block_size, int max_blocks, int64_t q_stride, cudaStream_t stream) {
    return launch<__nv_bfloat16>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens,
                                  out, lse, scale, tokens, batch, heads, kv_heads, head_dim,
                                  block_size, max_blocks, q_stride}, stream);
}
