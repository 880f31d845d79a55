// Exercise 18.1: The online softmax of a warp.
// Your part begins in line 51 of this file.
//
// A warp has one query of one head in `q_row`, spread over its lanes as rows.cuh says. Walk over the
// keys 0 to seen - 1: load the key's row and its value's row, compute the score, which is `dot`
// times flash.scale, and update maximum, total and `sum` as the online softmax does. Then write the
// row of out, which begins at row × head_dim: the sum divided by the total. One lane writes lse at
// `row`: maximum + log(total). A query that sees no key gets zeros and -INFINITY.
//
// You have
// - `q_row`, `k_row`, `v_row`, `sum`: rows of a head, spread over the warp; the last one is zero
// - `row.load(from, head_dim)`: loads a row that begins at `from`
// - `dot(q_row, k_row)`: returns the dot product to all 32 lanes
// - `sum.multiply(factor)`, `sum.add(factor, row)`: multiplies a row; adds factor × row
// - `sum.store(to, head_dim, factor)`: writes factor × the row from `to` on
// - `sequence.place(key, flash.block_size)`: returns int, which row of k and v the key is; times the
//   int64 strides it is an int64
// - `flash.k`, `flash.v`, `flash.k_stride`, `flash.v_stride`: the tensors, and the elements from one
//   row to the next
// - `head_start`: where the KV head begins in such a row
// - `seen`: int, the keys that the query sees; may be 0
// - `flash.out`, `flash.lse`, `row`: `[rows, head_dim]`, `[rows]`, and this query's row in both
// - `WARP`: 32; lane 0 is the thread whose number is a multiple of it
// - `flash.scale`, `expf(x)`, `logf(x)`: the factor of scores; natural exponential and logarithm
//
// In a terminal: yaie check 18.1, yaie hint 18.1, yaie reset 18.1.

// Flash attention, rung 1 of 3: a warp owns a row of scores and computes them one at a time.
//
// Computes  softmax(q kᵀ · scale) v and the log-sum-exp of each row, as specified in flash.cuh
// Shapes    as specified in flash.cuh; float32, float16 or bfloat16; head_dim at most 256, else
//           cudaErrorInvalidValue
// Owns      each warp: a query of a head; each lane: every 32nd element of the query's row and of
//           the output row; each thread block: 4 successive queries
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
    // your lines
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
