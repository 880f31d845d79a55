// Solution of exercise 18.1: The online softmax of a warp.
//
// A warp has one query of one head in `q_row`, spread over its lanes as rows.cuh says. Walk over the
// keys 0 to seen - 1: load the key's row and its value's row, compute the score, which is `dot`
// times flash.scale, and update maximum, total and `sum` as the online softmax does. Then write the
// row of out, which begins at row × head_dim: the sum divided by the total. One lane writes lse at
// `row`: maximum + log(total). A query that sees no key gets zeros and -INFINITY.
//
// Generated from flash_row in csrc/flash/row.cu.
// Edit it there, and run `python -m yaie.course build`.

// Flash attention, rung 1 of 3: a warp owns a row of scores and computes them one at a time.
//
// Computes  softmax(q kᵀ · scale) v and the log-sum-exp of each row, as specified in flash.cuh
// Shapes    as specified in flash.cuh; float32, float16 or bfloat16; head_dim at most 256, else
//           cudaErrorInvalidValue
// Owns      each warp: a query of a head; each lane: every 32nd element of the query's row and of
//           the output row; each thread block: 4 successive queries
// Moves     a warp requests all keys and values that its query sees: 2 × num_q × num_k × head_dim
//           elements per head, half of that if causal. The caches serve most of it.
// Reaches   5.1 TFLOP/s with 4 sequences of 4096, 32 heads of 128, in bfloat16 on an H200, 0.015 of
//           torch's FlashAttention-2
// Oracle    attention in float64, in tests/test_flash_kernels.py
// Idea      the online softmax: the row of scores is never stored, only its maximum, its sum and
//           the weighted sum of the values so far. The limit is latency: each score takes five
//           shuffles, and each shuffle waits for the one before it.
#include "flash/flash.cuh"
#include "flash/rows.cuh"

constexpr int WARPS = 4;

template <int PARTS, typename T>
__global__ void __launch_bounds__(WARPS* WARP) flash_row(Flash<T> flash) {
    Sequence sequence = find_sequence(flash, blockIdx.x, WARPS);
    int query = sequence.first_row + threadIdx.x / WARP, head = blockIdx.y;
    if (query >= sequence.num_queries) return;  // a whole warp returns, and no barrier follows
    int token = sequence.first_query + query, head_dim = flash.head_dim;
    int head_start = head / flash.group() * head_dim;  // of the KV head in a row of k or v
    int seen = sequence.seen_by(query, flash.causal);
    Row<PARTS> q_row, k_row, v_row, sum;
    q_row.load(flash.q + token * flash.q_stride + head * head_dim, head_dim);
    size_t row = (size_t)token * flash.heads + head;
    // exercise 18.1 begin
    float maximum = -INFINITY, total = 0.0f;
    for (int key = 0; key < seen; ++key) {
        int64_t place = sequence.place(key, flash.block_size);
        k_row.load(flash.k + place * flash.k_stride + head_start, head_dim);
        v_row.load(flash.v + place * flash.v_stride + head_start, head_dim);
        float score = dot(q_row, k_row) * flash.scale;
        float larger = fmaxf(maximum, score);
        float correction = expf(maximum - larger), weight = expf(score - larger);
        total = total * correction + weight;
        sum.multiply(correction);
        sum.add(weight, v_row);
        maximum = larger;
    }
    sum.store(flash.out + row * head_dim, head_dim, seen > 0 ? 1.0f / total : 0.0f);
    if (threadIdx.x % WARP == 0) flash.lse[row] = maximum + logf(total);  // -infinity if none
    // exercise 18.1 end
}

template <typename T>
static cudaError_t launch(const Flash<T>& flash, cudaStream_t stream) {
    if (flash.tokens == 0 || flash.heads == 0) return cudaSuccess;
    int parts = ceil_div(flash.head_dim, WARP);
    if (parts > MOST_PARTS) return cudaErrorInvalidValue;
    auto kernel = parts <= 1   ? flash_row<1, T>
                  : parts == 2 ? flash_row<2, T>
                  : parts <= 4 ? flash_row<4, T>
                               : flash_row<MOST_PARTS, T>;
    kernel<<<dim3(most_tiles(flash, WARPS), flash.heads), WARPS * WARP, 0, stream>>>(flash);
    return cudaGetLastError();
}

extern "C" cudaError_t flash_row_f32(
    const float* q, const float* k, const float* v, float* out, float* lse, const int* starts_q,
    const int* starts_k, const int* block_tables, const int* context_lens, int batch, int tokens,
    int keys, int heads, int kv_heads, int head_dim, int64_t q_stride, int64_t k_stride,
    int64_t v_stride, int block_size, int max_blocks, float scale, int causal,
    cudaStream_t stream) {
    Flash<float> flash = {q, k, v, out, lse, starts_q, starts_k, block_tables, context_lens, batch,
                          tokens, keys, heads, kv_heads, head_dim, q_stride, k_stride, v_stride,
                          block_size, max_blocks, scale, causal};
    return launch(flash, stream);
}
extern "C" cudaError_t flash_row_f16(
    const __half* q, const __half* k, const __half* v, __half* out, float* lse, const int* starts_q,
    const int* starts_k, const int* block_tables, const int* context_lens, int batch, int tokens,
    int keys, int heads, int kv_heads, int head_dim, int64_t q_stride, int64_t k_stride,
    int64_t v_stride, int block_size, int max_blocks, float scale, int causal,
    cudaStream_t stream) {
    Flash<__half> flash = {q, k, v, out, lse, starts_q, starts_k, block_tables, context_lens, batch,
                           tokens, keys, heads, kv_heads, head_dim, q_stride, k_stride, v_stride,
                           block_size, max_blocks, scale, causal};
    return launch(flash, stream);
}
extern "C" cudaError_t flash_row_bf16(
    const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, __nv_bfloat16* out,
    float* lse, const int* starts_q, const int* starts_k, const int* block_tables,
    const int* context_lens, int batch, int tokens, int keys, int heads, int kv_heads, int head_dim,
    int64_t q_stride, int64_t k_stride, int64_t v_stride, int block_size, int max_blocks,
    float scale, int causal, cudaStream_t stream) {
    Flash<__nv_bfloat16> flash = {q, k, v, out, lse, starts_q, starts_k, block_tables, context_lens,
                                  batch, tokens, keys, heads, kv_heads, head_dim, q_stride,
                                  k_stride, v_stride, block_size, max_blocks, scale, causal};
    return launch(flash, stream);
}
