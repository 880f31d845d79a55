// Exercise 19.5: Attention over selected tokens.
// Your part begins in line 55 of this file.
//
// Query `token` attends to `counts[token]` tokens of its context, and to no others. Row `token` of
// `selected` has room for `most` entries: the first `counts[token]` are positions in the sequence,
// in any order, and the others are not positions. Walk over the list as rung 2 walks over a context:
// a team of lanes takes an entry and loads the row of the key and of the value once for all query
// heads. The rest is as in exercise 19.2.
//
// You have
// - `selected`, `most`: int32 `[tokens, most]`: row `token` begins at `token * most` and holds
//   positions in the sequence, in any order
// - `counts`: int32 `[tokens]`: how many entries of the row are valid; those after them hold
//   anything
// - `context`, `find_slot(context, position, paged.block_size)`: the block table of this query's
//   sequence; the slot of a position
// - `first_team`, `team.number()`, `team.teams_per_warp()`, `WARPS`: as in exercise 19.2
// - `paged.kv_heads`, `paged.head_dim`, `paged.scale`, `PER_LANE`: as in exercise 19.2
// - `paged.key_pool`, `paged.value_pool`, `team.load(from, x)`, `team.sum(value)`, `dot(a, b)`: as
//   in exercise 19.2
// - `q[h]`, `states[h]`, `heads`, `HEADS`, `kv_head`: as in exercise 19.2; `finish` is called after
//   your lines
//
// In a terminal: yaie check 19.5, yaie hint 19.5, yaie reset 19.5.

// Sparse paged attention: each query attends to selected tokens of its context, and to no others.
//
// Computes  as paged.cuh, where the keys of query t are those at the positions selected[t, 0] to
//           selected[t, counts[t] - 1] of its sequence; all query heads share the selection
// Shapes    see paged.cuh; selected int32 [tokens, most], counts int32 [tokens], at most `most`;
//           float32, float16 or bfloat16, any head_dim up to 256
// Owns      each thread block: the query heads that share a KV head, up to 8 of them. Each team of
//           lanes (team.cuh): every n-th selected token, n being the number of teams. Each lane: 8
//           elements of each row.
#include "paged/team.cuh"

template <typename T, bool WIDE, int HEADS>
__global__ void paged_selected(Paged<T> paged, Team<T, WIDE> team, const int* selected,
                               const int* counts, int most) {
    int token = blockIdx.x, group = paged.group(), parts = ceil_div(group, HEADS);
    int kv_head = blockIdx.y / parts, first_head = blockIdx.y % parts * HEADS;  // in the group
    int heads = min(HEADS, group - first_head);
    int64_t row = (int64_t)token * paged.heads + kv_head * group + first_head;  // in out and lse
    Context context = find_context(paged, token);

    float q[HEADS][PER_LANE];
    State states[HEADS];
    const T* from = paged.q + token * paged.q_stride +
                    (int64_t)(kv_head * group + first_head) * paged.head_dim;
#pragma unroll
    for (int h = 0; h < HEADS; ++h)
        if (h < heads) team.load(from + (int64_t)h * paged.head_dim, q[h]);

    int first_team = threadIdx.x / WARP * team.teams_per_warp();  // this warp's first
    // exercise 19.5 begin: one team reads each selected token, for the states of all heads
    // your lines
    // exercise 19.5 end
    finish(team, states, heads, paged.out + row * paged.head_dim, paged.lse + row);
}

template <typename T, bool WIDE>
static void launch_layout(const Paged<T>& paged, const int* selected, const int* counts, int most,
                          cudaStream_t stream) {
    int group = paged.group(), heads = group == 1 ? 1 : group <= 4 ? 4 : 8;
    auto kernel = paged_selected<T, WIDE, 8>;
    if (heads == 4) kernel = paged_selected<T, WIDE, 4>;
    if (heads == 1) kernel = paged_selected<T, WIDE, 1>;
    Team<T, WIDE> team{lanes_for(paged.head_dim), paged.head_dim};
    dim3 grid(paged.tokens, paged.kv_heads * ceil_div(group, heads));
    kernel<<<grid, THREADS, 0, stream>>>(paged, team, selected, counts, most);
}

template <typename T>
static cudaError_t launch(const Paged<T>& paged, const int* selected, const int* counts, int most,
                          cudaStream_t stream) {
    if (paged.tokens == 0 || paged.heads == 0 || paged.head_dim == 0) return cudaSuccess;
    if (paged.head_dim > MOST_DIM) return cudaErrorInvalidValue;
    auto run = wide_rows(paged) ? launch_layout<T, true> : launch_layout<T, false>;
    run(paged, selected, counts, most, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t paged_selected_f32(
    const float* q, const float* key_pool, const float* value_pool, const int* block_tables,
    const int* context_lens, const int* cu_seqlens, float* out, float* lse, float scale, int tokens,
    int batch, int heads, int kv_heads, int head_dim, int block_size, int max_blocks,
    int64_t q_stride, const int* selected, const int* counts, int most,
    cudaStream_t stream) {
    return launch<float>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out, lse,
                          scale, tokens, batch, heads, kv_heads, head_dim, block_size, max_blocks,
                          q_stride},
                         selected, counts, most, stream);
}
extern "C" cudaError_t paged_selected_f16(
    const __half* q, const __half* key_pool, const __half* value_pool, const int* block_tables,
    const int* context_lens, const int* cu_seqlens, __half* out, float* lse, float scale,
    int tokens, int batch, int heads, int kv_heads, int head_dim, int block_size, int max_blocks,
    int64_t q_stride, const int* selected, const int* counts, int most,
    cudaStream_t stream) {
    return launch<__half>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out,
                           lse, scale, tokens, batch, heads, kv_heads, head_dim, block_size,
                           max_blocks, q_stride},
                          selected, counts, most, stream);
}
extern "C" cudaError_t paged_selected_bf16(
    const __nv_bfloat16* q, const __nv_bfloat16* key_pool, const __nv_bfloat16* value_pool,
    const int* block_tables, const int* context_lens, const int* cu_seqlens, __nv_bfloat16* out,
    float* lse, float scale, int tokens, int batch, int heads, int kv_heads, int head_dim,
    int block_size, int max_blocks, int64_t q_stride, const int* selected, const int* counts, int most, cudaStream_t stream) {
    return launch<__nv_bfloat16>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens,
                                  out, lse, scale, tokens, batch, heads, kv_heads, head_dim,
                                  block_size, max_blocks, q_stride},
                          selected, counts, most, stream);
}
