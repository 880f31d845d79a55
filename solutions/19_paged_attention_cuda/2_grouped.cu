// Solution of exercise 19.2: Read a key once for all heads that share it.
//
// The thread block has the `heads` query heads q[0], q[1], … of one KV head, and a state for each.
// Walk over the keys of `context`: a team of lanes takes a key, loads its row and the row of values
// once, and lets every head use them. The score is `team.sum(dot(q[h], k)) * paged.scale`, and
// `states[h].add(score, v)` adds it to the head's state. The warp's teams begin with key
// `first_team`. At the end call `finish(team, states, heads, …, …)` with the addresses of this
// thread block's first row of paged.out and of paged.lse, row number `row`.
//
// Generated from paged_grouped in csrc/paged/grouped.cu.
// Edit it there, and run `python -m yaie.course build`.

// Paged attention, rung 2 of 4: one thread block per query and KV head.
//
// Computes  the attention of each query over the keys that it sees, and the log-sum-exp; see
//           paged.cuh
// Shapes    see paged.cuh; float32, float16 or bfloat16, any head_dim up to 256
// Owns      each thread block: the query heads that share a KV head, up to 8 of them. Each team of
//           lanes (team.cuh): every n-th key, n being the number of teams, and for each query head
//           the softmax state of those keys. Each lane: 8 elements of each row.
// Moves     keys and values of a context once, if up to 8 query heads share a KV head:
//           tokens × KV heads × context × 2 × head_dim elements
// Reaches   0.061 of copy bandwidth on an H200: 16 contexts of 4,096 in bfloat16, 32 query heads, 8
//           KV heads, head_dim 128
// Oracle    attention in float64, in tests/test_paged_rungs.py
// Idea      a key in registers serves all query heads that share it. No score is stored: each team
//           keeps an online softmax, and the states of the teams are merged at the end.
#include "paged/team.cuh"

template <typename T, bool WIDE, int HEADS>
__global__ void paged_grouped(Paged<T> paged, Team<T, WIDE> team) {
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
    // exercise 19.2 begin: one team reads each key of the context, for the states of all heads
    for (int first = first_team; first < context.length; first += WARPS * team.teams_per_warp()) {
        int key = first + team.number();
        bool inside = key < context.length;
        float k[PER_LANE] = {}, v[PER_LANE] = {};
        if (inside) {
            int64_t slot = find_slot(context, key, paged.block_size);
            int64_t at = (slot * paged.kv_heads + kv_head) * paged.head_dim;
            team.load(paged.key_pool + at, k);
            team.load(paged.value_pool + at, v);
        }
#pragma unroll
        for (int h = 0; h < HEADS; ++h) {
            if (h >= heads) continue;
            float score = team.sum(dot(q[h], k)) * paged.scale;
            if (inside) states[h].add(score, v);
        }
    }
    finish(team, states, heads, paged.out + row * paged.head_dim, paged.lse + row);
    // exercise 19.2 end
}

template <typename T, bool WIDE>
static void launch_layout(const Paged<T>& paged, cudaStream_t stream) {
    int group = paged.group(), heads = group == 1 ? 1 : group <= 4 ? 4 : 8;
    auto kernel = paged_grouped<T, WIDE, 8>;
    if (heads == 4) kernel = paged_grouped<T, WIDE, 4>;
    if (heads == 1) kernel = paged_grouped<T, WIDE, 1>;
    Team<T, WIDE> team{lanes_for(paged.head_dim), paged.head_dim};
    dim3 grid(paged.tokens, paged.kv_heads * ceil_div(group, heads));
    kernel<<<grid, THREADS, 0, stream>>>(paged, team);
}

template <typename T>
static cudaError_t launch(const Paged<T>& paged, cudaStream_t stream) {
    if (paged.tokens == 0 || paged.heads == 0 || paged.head_dim == 0) return cudaSuccess;
    if (paged.head_dim > MOST_DIM) return cudaErrorInvalidValue;
    auto run = wide_rows(paged) ? launch_layout<T, true> : launch_layout<T, false>;
    run(paged, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t paged_grouped_f32(
    const float* q, const float* key_pool, const float* value_pool, const int* block_tables,
    const int* context_lens, const int* cu_seqlens, float* out, float* lse, float scale, int tokens,
    int batch, int heads, int kv_heads, int head_dim, int block_size, int max_blocks,
    int64_t q_stride, cudaStream_t stream) {
    return launch<float>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out, lse,
                          scale, tokens, batch, heads, kv_heads, head_dim, block_size, max_blocks,
                          q_stride}, stream);
}
extern "C" cudaError_t paged_grouped_f16(
    const __half* q, const __half* key_pool, const __half* value_pool, const int* block_tables,
    const int* context_lens, const int* cu_seqlens, __half* out, float* lse, float scale,
    int tokens, int batch, int heads, int kv_heads, int head_dim, int block_size, int max_blocks,
    int64_t q_stride, cudaStream_t stream) {
    return launch<__half>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out,
                           lse, scale, tokens, batch, heads, kv_heads, head_dim, block_size,
                           max_blocks, q_stride}, stream);
}
extern "C" cudaError_t paged_grouped_bf16(
    const __nv_bfloat16* q, const __nv_bfloat16* key_pool, const __nv_bfloat16* value_pool,
    const int* block_tables, const int* context_lens, const int* cu_seqlens, __nv_bfloat16* out,
    float* lse, float scale, int tokens, int batch, int heads, int kv_heads, int head_dim,
    int block_size, int max_blocks, int64_t q_stride, cudaStream_t stream) {
    return launch<__nv_bfloat16>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens,
                                  out, lse, scale, tokens, batch, heads, kv_heads, head_dim,
                                  block_size, max_blocks, q_stride}, stream);
}
