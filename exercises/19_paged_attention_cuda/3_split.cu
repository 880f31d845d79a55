// Exercise 19.3: Split the context, merge by log-sum-exp.
// Your parts begin in lines 50 and 92 of this file.
//
// In the first kernel compute which keys a split has, `begin` to `end` (exclusive): split s begins
// with key s * part and has `part` keys, and the last of the `splits` has all that are left; none
// goes beyond context.length. A thread block without keys may return. Each split leaves an output,
// divided by its own sum, and a log-sum-exp. In the second kernel merge those of the first `count`
// splits, which are the ones with keys, to paged.out and paged.lse of row `row`. With a count of 0
// the row is zeros and −INFINITY.
//
// You have
// - `split`, `splits`, `part`: which split this thread block has, of how many; keys per split
// - `context.length`: int, how many keys the query sees
// - `begin`, `end`: ints, to be set
// - `count`: how many splits have keys
// - `parts`, `part_lse`: float: split s has left `parts[(s * rows + row) * paged.head_dim + d]` and
//   `part_lse[s * rows + row]`
// - `row`, `rows`: this row, and how many there are
// - `paged.out`, `paged.lse`: `[rows, head_dim]` and float `[rows]`; `from_float<T>(value)` rounds
// - `min(a, b)`, `expf(x)`, `fmaxf(a, b)`, `logf(x)`: functions of numbers
// - `MERGERS`: threads of a thread block in the second kernel
//
// In a terminal: yaie check 19.3, yaie hint 19.3, yaie reset 19.3.

// Paged attention, rung 3 of 4: several thread blocks per query and KV head.
//
// Computes  the attention of each query over the keys that it sees, and the log-sum-exp; see
//           paged.cuh
// Shapes    see paged.cuh; float32, float16 or bfloat16, any head_dim up to 256; workspace for the
//           results of the splits: parts float32 [splits, tokens, heads, head_dim] and part_lse
//           float32 [splits, tokens, heads]
// Owns      split s: keys s × part to (s + 1) × part of a context, and the last split all that
//           remain. Each thread block: a split of a query, for up to 8 query heads that share a KV
//           head; its teams of lanes own the same as in rung 2. In the merge, each thread block: a
//           query head.
#include "paged/team.cuh"

constexpr int MERGERS = 128;  // threads per thread block of the merge

template <typename T, bool WIDE, int HEADS>
__global__ void paged_split(Paged<T> paged, Team<T, WIDE> team, float* parts, float* part_lse,
                            int part, int splits) {
    int token = blockIdx.x, split = blockIdx.z, group = paged.group();
    int tiles = ceil_div(group, HEADS);
    int kv_head = blockIdx.y / tiles, first_head = blockIdx.y % tiles * HEADS;  // in the group
    int heads = min(HEADS, group - first_head);
    int64_t row = (int64_t)token * paged.heads + kv_head * group + first_head;
    Context context = find_context(paged, token);
    int begin = 0, end = 0;  // the keys of this split
    // exercise 19.3 begin: the keys of this split; a whole thread block without keys may return
    // your lines
    // exercise 19.3 end

    float q[HEADS][PER_LANE];
    State states[HEADS];
    const T* from = paged.q + token * paged.q_stride +
                    (int64_t)(kv_head * group + first_head) * paged.head_dim;
#pragma unroll
    for (int h = 0; h < HEADS; ++h)
        if (h < heads) team.load(from + (int64_t)h * paged.head_dim, q[h]);

    int first_team = threadIdx.x / WARP * team.teams_per_warp();  // this warp's first
    for (int first = begin + first_team; first < end; first += WARPS * team.teams_per_warp()) {
        int key = first + team.number();
        bool inside = key < end;
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
    row += (int64_t)split * paged.tokens * paged.heads;
    finish(team, states, heads, parts + row * paged.head_dim, part_lse + row);
}

// Row r of split s begins at parts[(s × rows + r) × head_dim]; its lse is part_lse[s × rows + r].
template <typename T>
__global__ void paged_merge(Paged<T> paged, const float* parts, const float* part_lse, int part,
                            int splits) {
    int64_t row = (int64_t)blockIdx.x * paged.heads + blockIdx.y;
    int64_t rows = (int64_t)paged.tokens * paged.heads;
    int length = find_context(paged, blockIdx.x).length;
    int count = min(ceil_div(length, part), splits);  // the first `count` splits have keys
    // exercise 19.3 begin: out[row] and lse[row] from parts and part_lse of `count` splits
    // your lines
    // exercise 19.3 end
}

template <typename T, bool WIDE>
static void launch_layout(const Paged<T>& paged, float* parts, float* part_lse, int part,
                          int splits, cudaStream_t stream) {
    int group = paged.group(), heads = group == 1 ? 1 : group <= 4 ? 4 : 8;
    auto kernel = paged_split<T, WIDE, 8>;
    if (heads == 4) kernel = paged_split<T, WIDE, 4>;
    if (heads == 1) kernel = paged_split<T, WIDE, 1>;
    Team<T, WIDE> team{lanes_for(paged.head_dim), paged.head_dim};
    dim3 grid(paged.tokens, paged.kv_heads * ceil_div(group, heads), splits);
    kernel<<<grid, THREADS, 0, stream>>>(paged, team, parts, part_lse, part, splits);
}

template <typename T>
static cudaError_t launch(const Paged<T>& paged, float* parts, float* part_lse, int part,
                          int splits, cudaStream_t stream) {
    if (paged.tokens == 0 || paged.heads == 0 || paged.head_dim == 0) return cudaSuccess;
    if (paged.head_dim > MOST_DIM || part < 1 || splits < 1) return cudaErrorInvalidValue;
    auto run = wide_rows(paged) ? launch_layout<T, true> : launch_layout<T, false>;
    run(paged, parts, part_lse, part, splits, stream);
    dim3 grid(paged.tokens, paged.heads);
    paged_merge<<<grid, MERGERS, 0, stream>>>(paged, parts, part_lse, part, splits);
    return cudaGetLastError();
}

extern "C" cudaError_t paged_split_f32(
    const float* q, const float* key_pool, const float* value_pool, const int* block_tables,
    const int* context_lens, const int* cu_seqlens, float* out, float* lse, float scale, int tokens,
    int batch, int heads, int kv_heads, int head_dim, int block_size, int max_blocks,
    int64_t q_stride, float* parts, float* part_lse, int part, int splits,
    cudaStream_t stream) {
    return launch<float>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out, lse,
                          scale, tokens, batch, heads, kv_heads, head_dim, block_size, max_blocks,
                          q_stride},
                         parts, part_lse, part, splits, stream);
}
extern "C" cudaError_t paged_split_f16(
    const __half* q, const __half* key_pool, const __half* value_pool, const int* block_tables,
    const int* context_lens, const int* cu_seqlens, __half* out, float* lse, float scale,
    int tokens, int batch, int heads, int kv_heads, int head_dim, int block_size, int max_blocks,
    int64_t q_stride, float* parts, float* part_lse, int part, int splits,
    cudaStream_t stream) {
    return launch<__half>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out,
                           lse, scale, tokens, batch, heads, kv_heads, head_dim, block_size,
                           max_blocks, q_stride},
                          parts, part_lse, part, splits, stream);
}
extern "C" cudaError_t paged_split_bf16(
    const __nv_bfloat16* q, const __nv_bfloat16* key_pool, const __nv_bfloat16* value_pool,
    const int* block_tables, const int* context_lens, const int* cu_seqlens, __nv_bfloat16* out,
    float* lse, float scale, int tokens, int batch, int heads, int kv_heads, int head_dim,
    int block_size, int max_blocks, int64_t q_stride, float* parts, float* part_lse, int part,
    int splits, cudaStream_t stream) {
    return launch<__nv_bfloat16>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens,
                                  out, lse, scale, tokens, batch, heads, kv_heads, head_dim,
                                  block_size, max_blocks, q_stride},
                                 parts, part_lse, part, splits, stream);
}
