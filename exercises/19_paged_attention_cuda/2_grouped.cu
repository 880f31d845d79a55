// Exercise 19.2: Read a key once for all heads that share it.
// Your part begins in line 58 of this file.
//
// The thread block has the `heads` query heads q[0], q[1], … of one KV head, and a state for each.
// Walk over the keys of `context`: a team of lanes takes a key, loads its row and the row of values
// once, and lets every head use them. The score is `team.sum(dot(q[h], k)) * paged.scale`, and
// `states[h].add(score, v)` adds it to the head's state. The warp's teams begin with key
// `first_team`. At the end call `finish(team, states, heads, …, …)` with the addresses of this
// thread block's first row of paged.out and of paged.lse, row number `row`.
//
// You have
// - `context.length`: int, how many keys the query sees
// - `first_team`, `WARPS`: the number of this warp's first team in the thread block; warps per
//   thread block
// - `team.number()`, `team.teams_per_warp()`: the number of this team in its warp; how many a warp
//   has
// - `find_slot(context, key, paged.block_size)`: returns int64, the slot of a key; a slot holds
//   paged.kv_heads rows of paged.head_dim elements
// - `paged.key_pool`, `paged.value_pool`, `kv_head`: the pools, and which of a slot's rows to read
// - `team.load(from, x)`: loads this lane's part of a row into `float x[PER_LANE]`
// - `dot(q[h], k)`, `team.sum(value)`: of this lane's parts; the sum over the team, which all 32
//   lanes must call
// - `states[h].add(score, v)`: takes a key into head h's state
// - `heads`, `HEADS`: query heads of this thread block, and the constant they are at most
// - `finish(team, states, heads, out, lse)`: merges all teams and writes; `out` and `lse` are the
//   addresses of the first head's row
// - `paged.out`, `paged.lse`, `row`: `[rows, head_dim]`, `[rows]`, and the row of the first head
//
// In a terminal: yaie check 19.2, yaie hint 19.2, yaie reset 19.2.

// Paged attention, rung 2 of 4: one thread block per query and KV head.
//
// Computes  the attention of each query over the keys that it sees, and the log-sum-exp; see
//           paged.cuh
// Shapes    see paged.cuh; float32, float16 or bfloat16, any head_dim up to 256
// Owns      each thread block: the query heads that share a KV head, up to 8 of them. Each team of
//           lanes (team.cuh): every n-th key, n being the number of teams, and for each query head
//           the softmax state of those keys. Each lane: 8 elements of each row.
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
    // your lines
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
