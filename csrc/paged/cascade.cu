// Shared-prefix (cascade) attention: the tokens that all sequences have in common are read once.
//
// Needs     sm_80 (cp.async, ldmatrix, mma.sync m16n8k16) and 64 KiB of shared memory
// Computes  the attention of every query over the first `shared` tokens of the first sequence,
//           merged with what `out` and `lse` hold: the attention over each sequence's own tokens
//           after them
// Shapes    as in mma.cu, one query per sequence; `shared` is at least 1; workspace:
//           splits × tokens × heads × (head_dim + 1) floats
// Owns      each thread block: 128 rows, which are query heads of one KV head, of any sequences,
//           and one of `splits` parts of the shared tokens; each warp: 16 rows. In the merge, each
//           warp: a row
// Moves     the shared keys and values once per 128 rows; the partial states out and in
// Reaches   81.5 µs on an H200 for 64 sequences that share 8192 tokens and have 256 of their own,
//           in bfloat16, 32 query heads, 8 KV heads, head_dim 128: 3.9 times as fast as mma.cu
//           alone, which takes 313.8 µs although the L2 cache serves most of its 64 reads of the
//           shared tokens
// Oracle    attention in float64 (tests/test_paged_rungs.py)
// Idea      a decode step reads each context for the queries of one sequence, at most 16 rows, and
//           is limited by memory. With a shared prefix the queries of all sequences are rows of one
//           matrix product: each key that is read serves 128 rows, as in the prefill of a prompt.
//           The softmax over both parts follows from their log-sum-exps (Hydragen, Juravsky et al.,
//           2024; FlashInfer's cascade, Ye et al., 2024).
#include "follow.cuh"
#include "mma.cuh"
#include "paged/paged.cuh"
#include "paged/rows.cuh"

constexpr int WARPS = 8;   // per thread block
constexpr int TILE = 64;   // keys per tile
constexpr int STAGES = 2;  // tiles in shared memory
constexpr int ROWS = WARPS * 16, THREADS = WARPS * WARP;

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS, 1)
    attend_prefix(const Paged<T> paged, int shared_tokens, float* __restrict__ parts,
                  float* __restrict__ part_lse) {
    extern __shared__ __align__(128) unsigned char shared[];
    constexpr int CHUNKS = HEAD_DIM / CHUNK, COPY_ROWS = THREADS / CHUNKS;
    constexpr int COPIES = TILE / COPY_ROWS, SIZE = TILE * HEAD_DIM;
    T* stages = reinterpret_cast<T*>(shared);
    let_next_begin();
    int split = blockIdx.x, kv_head = blockIdx.z, group = paged.group();
    int tiles = ceil_div(shared_tokens, TILE);
    int tile = (int)((int64_t)tiles * split / gridDim.x);
    int end = (int)((int64_t)tiles * (split + 1) / gridDim.x);

    // A thread copies the same chunk of every COPY_ROWS-th key. Tables are read one tile ahead.
    const Context context{paged.block_tables, shared_tokens};
    int first = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    int64_t row_size = (int64_t)paged.kv_heads * HEAD_DIM;
    int column = kv_head * HEAD_DIM + chunk * CHUNK, ahead = tile, slots[COPIES];
    auto look_up = [&] {
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            int key = ahead * TILE + i * COPY_ROWS + first;
            bool seen = ahead < end && key < shared_tokens;
            slots[i] = seen ? (int)find_slot(context, key, paged.block_size) : -1;
        }
    };
    auto copy = [&](int stage) {
        T* keys = stages + stage * 2 * SIZE;
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            int64_t place = max(slots[i], 0) * row_size + column;
            T* to = keys + chunk_at<HEAD_DIM>(i * COPY_ROWS + first, chunk);
            cp_async_16(to, paged.key_pool + place, slots[i] >= 0);
            cp_async_16(to + SIZE, paged.value_pool + place, slots[i] >= 0);
        }
        cp_async_commit();
        ++ahead;
        look_up();
    };
    look_up();
    for (int stage = 0; stage < STAGES - 1; ++stage) copy(stage);

    int first_row = blockIdx.y * ROWS + threadIdx.x / WARP * 16;
    int num_rows = paged.tokens * group;
    Rows<T, HEAD_DIM> rows;
    rows.begin([&](int row) {
        row += first_row;
        return row < num_rows ? paged.q + row / group * paged.q_stride +
                                    (kv_head * group + row % group) * HEAD_DIM
                              : nullptr;
    });
    float scale = paged.scale * LOG2_E;
    for (int stage = 0; tile < end; ++tile) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // this tile has arrived, and all threads are done with the last one
        copy(stage == 0 ? STAGES - 1 : stage - 1);
        const T* keys = stages + stage * 2 * SIZE;
        if (first_row < num_rows)
            rows.template attend<TILE>(keys, keys + SIZE, shared_tokens - tile * TILE, scale);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    rows.finish();
    wait_for_last();  // `parts` may be in use there; and kernels after this one wait for both
#pragma unroll
    for (int below = 0; below < 2; ++below) {
        int row = first_row + threadIdx.x % WARP / 4 + below * 8;
        if (row >= num_rows) continue;
        int64_t head = ((int64_t)split * paged.tokens + row / group) * paged.heads +
                       kv_head * group + row % group;
        rows.store(parts + head * HEAD_DIM, below);
        if (threadIdx.x % 4 == 0) part_lse[head] = rows.lse(below);
    }
}

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS, 4)
    merge_prefix(const Paged<T> paged, const float* __restrict__ parts,
                 const float* __restrict__ part_lse, int splits) {
    constexpr int EACH = HEAD_DIM / WARP;  // elements per lane
    int num_rows = paged.tokens * paged.heads, lane = threadIdx.x % WARP;
    int row = blockIdx.x * WARPS + threadIdx.x / WARP;
    wait_for_last();
    if (row >= num_rows) return;
    float own = paged.lse[row], largest = fmaxf(own, LOWEST);
    for (int i = 0; i < splits; ++i) largest = fmaxf(largest, part_lse[i * num_rows + row]);
    T* out = paged.out + (int64_t)row * HEAD_DIM + lane * EACH;
    float total = expf(own - largest), sum[EACH];
#pragma unroll
    for (int j = 0; j < EACH; ++j) sum[j] = total * to_float(out[j]);
#pragma unroll 4
    for (int i = 0; i < splits; ++i) {
        float weight = expf(part_lse[i * num_rows + row] - largest);
        const float* from = parts + ((int64_t)i * num_rows + row) * HEAD_DIM + lane * EACH;
        total += weight;
#pragma unroll
        for (int j = 0; j < EACH; ++j) sum[j] += weight * from[j];
    }
#pragma unroll
    for (int j = 0; j < EACH; ++j) out[j] = from_float<T>(sum[j] / total);
    __syncwarp();  // wait until every lane has read the old lse
    if (lane == 0) paged.lse[row] = largest + logf(total);
}

template <typename T, int HEAD_DIM>
static cudaError_t launch(const Paged<T>& paged, int shared_tokens, float* workspace, int splits,
                          cudaStream_t stream) {
    int bytes = STAGES * 2 * TILE * HEAD_DIM * sizeof(T), num_rows = paged.tokens * paged.heads;
    cudaError_t error = cudaFuncSetAttribute(
        attend_prefix<T, HEAD_DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    float* part_lse = workspace + (int64_t)splits * num_rows * HEAD_DIM;
    dim3 grid(splits, ceil_div(paged.tokens * paged.group(), ROWS), paged.kv_heads);
    error = launch_behind(attend_prefix<T, HEAD_DIM>, grid, THREADS, bytes, stream, paged,
                          shared_tokens, workspace, part_lse);
    if (error != cudaSuccess) return error;
    return launch_behind(merge_prefix<T, HEAD_DIM>, ceil_div(num_rows, WARPS), THREADS, 0, stream,
                         paged, (const float*)workspace, (const float*)part_lse, splits);
}

template <typename T>
static cudaError_t launch(const Paged<T>& paged, int shared_tokens, float* workspace, int splits,
                          cudaStream_t stream) {
    if (paged.tokens == 0) return cudaSuccess;
    if (shared_tokens < 1 || splits < 1) return cudaErrorInvalidValue;
    if (!aligned16(paged.key_pool, paged.value_pool) || paged.q_stride % 2 ||
        reinterpret_cast<uintptr_t>(paged.q) % 4)
        return cudaErrorMisalignedAddress;
    auto run = paged.head_dim == 64 ? launch<T, 64> : launch<T, 128>;
    if (paged.head_dim != 64 && paged.head_dim != 128) return cudaErrorInvalidValue;
    return run(paged, shared_tokens, workspace, splits, stream);
}

extern "C" cudaError_t paged_cascade_f16(
    const __half* q, const __half* key_pool, const __half* value_pool, const int* block_tables,
    const int* context_lens, const int* cu_seqlens, __half* out, float* lse, float scale,
    int tokens, int batch, int heads, int kv_heads, int head_dim, int block_size, int max_blocks,
    int64_t q_stride, float* workspace, int shared_tokens, int splits, cudaStream_t stream) {
    return launch<__half>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out,
                           lse, scale, tokens, batch, heads, kv_heads, head_dim, block_size,
                           max_blocks, q_stride},
                          shared_tokens, workspace, splits, stream);
}
extern "C" cudaError_t paged_cascade_bf16(
    const __nv_bfloat16* q, const __nv_bfloat16* key_pool, const __nv_bfloat16* value_pool,
    const int* block_tables, const int* context_lens, const int* cu_seqlens, __nv_bfloat16* out,
    float* lse, float scale, int tokens, int batch, int heads, int kv_heads, int head_dim,
    int block_size, int max_blocks, int64_t q_stride, float* workspace, int shared_tokens,
    int splits, cudaStream_t stream) {
    return launch<__nv_bfloat16>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens,
                                  out, lse, scale, tokens, batch, heads, kv_heads, head_dim,
                                  block_size, max_blocks, q_stride},
                                 shared_tokens, workspace, splits, stream);
}
