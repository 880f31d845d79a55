// Paged attention, rung 4 of 4: tensor cores, and equal shares of all contexts; the kernel that the
// engine uses.
//
// Needs     sm_80 (cp.async, ldmatrix, mma.sync m16n8k16) and 48 KiB of shared memory
// Computes  the attention of each query over the keys that it sees, and the log-sum-exp; see
//           paged.cuh; without the first `skip` tokens of every context, a multiple of block_size.
//           If cu_seqlens ends before the last token, the tokens after it are not written
// Shapes    see paged.cuh; float16 or bfloat16, head_dim 64 or 128, at most 16 query heads per KV
//           head; pools at multiples of 16 bytes, queries at multiples of 4; fewer than 2^31 slots;
//           workspace: workers × (4 + 2 × group × (head_dim + 1)) floats, or null: then each warp
//           owns all tiles of an item, and workers is tokens × KV heads. The launchers `_fp8` read
//           pools of e4m3, which stand for the same numbers times key_scale and value_scale, float32
//           per KV head, or one for all heads if `per_head` is 0; positive; 1 if null
// Owns      each thread block, of one warp: one n-th of all tiles of 32 keys, n being `workers`,
//           for the query heads of a KV head, which are rows of a tile of 16; missing rows are
//           zeros; and every n-th token's result, if its context is empty
// Moves     keys and values once, q, out and lse; and at most two partial states per warp
// Reaches   0.88 of copy bandwidth on an H200: 16 contexts of 4,096 in bfloat16, 32 query heads, 8
//           KV heads, head_dim 128, blocks of 16
// Oracle    attention in float64 (tests/test_paged_rungs.py)
// Idea      three measures keep every warp loading until the end:
//           - Equal shares. All work forms one list of tiles (shares.cuh). Each warp finds its
//             share of the list from context_lens, so all warps finish together however different
//             the contexts are, and the host need not know the lengths. A second kernel merges the
//             items that a boundary between shares cuts.
//           - No barrier. A warp copies its own tiles and does not wait for other warps. The copies
//             of the next STAGES - 1 tiles are always in flight, even across the ends of contexts,
//             and the entries of the block tables are read one tile earlier than they are needed.
//           - Tensor cores. Scores and weighted sums are matrix products, 16 × 16 × head_dim.
//           A cache of 8-bit floats is half as large, its tiles travel as they are, and twice as
//           many warps have room for theirs. Codes are widened in registers (rows_fp8.cuh). The scale
//           of the keys is a factor of the scores, that of the values one of the output: neither is
//           multiplied to any element.
#include "follow.cuh"
#include "mma.cuh"
#include "paged/rows_fp8.cuh"
#include "paged/shares.cuh"

constexpr int TILE = 32;            // keys per tile
constexpr int STAGES = 3;           // tiles per warp in shared memory
constexpr int MERGE_THREADS = 128;  // per thread block of the merge

static_assert(TILE <= WARP, "one lane looks up each key of a tile");

// How a cache of T or of 8-bit floats is read.
template <typename T, typename Cache, int HEAD_DIM>
struct CacheRows : Rows<T, HEAD_DIM> {
    static constexpr int CHUNK = ::CHUNK;  // elements in 16 bytes
    __device__ static int place(int row, int chunk) { return chunk_at<HEAD_DIM>(row, chunk); }
};
template <typename T, int HEAD_DIM>
struct CacheRows<T, __nv_fp8_e4m3, HEAD_DIM> : RowsFp8<T, HEAD_DIM> {
    static constexpr int CHUNK = CODES;
    __device__ static int place(int row, int chunk) { return codes_at<HEAD_DIM>(row, chunk); }
};
template <typename T, typename Cache>
using Shares = Work<T, Cache, TILE>;

// Write zeros and a log-sum-exp of -inf for queries that see no key: no share contains them.
template <typename T, typename Cache>
__device__ void write_empty(const Shares<T, Cache>& work, int worker) {
    const Paged<T, Cache>& paged = work.paged;
    for (int token = worker, end = work.tokens(); token < end; token += work.workers) {
        if (work.context(token).length > 0) continue;
        int64_t row = (int64_t)token * paged.heads;
        uint32_t* out = reinterpret_cast<uint32_t*>(paged.out + row * paged.head_dim);
        for (int i = threadIdx.x; i < paged.heads * paged.head_dim / 2; i += WARP) out[i] = 0;
        for (int i = threadIdx.x; i < paged.heads; i += WARP) paged.lse[row + i] = -INFINITY;
    }
}

template <typename T, typename Cache, int HEAD_DIM>
__global__ void __launch_bounds__(WARP) paged_mma(const Shares<T, Cache> work) {
    extern __shared__ __align__(128) unsigned char shared[];
    using Reads = CacheRows<T, Cache, HEAD_DIM>;
    constexpr int CHUNKS = HEAD_DIM / Reads::CHUNK, COPY_ROWS = WARP / CHUNKS;
    constexpr int SIZE = TILE * HEAD_DIM;
    const Paged<T, Cache>& paged = work.paged;
    Cache* stages = reinterpret_cast<Cache*>(shared);
    int worker = blockIdx.x, lane = threadIdx.x, group = paged.group();

    if (work.skip == 0) let_next_begin();
    // Kernels that write lengths or tables never let the next one begin early: read both now.
    int count, total;
    Place now = find_share(work, worker, count, total);
    wait_for_last();
    let_next_begin();  // only here if skip > 0: cascade.cu reads keys before it waits
    if (lane == 0 && work.places)
        work.places[worker] = make_int4(now.token * paged.kv_heads + now.kv_head, now.tile,
                                        count ? now.tiles : 0, total);
    write_empty(work, worker);
    if (count == 0) return;

    Place ahead = now;  // the next tile to copy
    int left = count, slot;
    auto look_up = [&] {
        int key = ahead.tile * TILE + lane;
        slot = key < ahead.context.length ? (int)find_slot(ahead.context, key, paged.block_size)
                                          : -1;
    };
    auto copy = [&](int stage) {
        if (left > 0) {
            Cache* keys = stages + stage * 2 * SIZE;
            int chunk = lane % CHUNKS, row_size = paged.kv_heads * HEAD_DIM;
            int column = ahead.kv_head * HEAD_DIM + chunk * Reads::CHUNK;
#pragma unroll
            for (int i = 0; i < TILE; i += COPY_ROWS) {
                int row = i + lane / CHUNKS, from = __shfl_sync(ALL_LANES, slot, row);
                int64_t place = (int64_t)max(from, 0) * row_size + column;
                Cache* to = keys + Reads::place(row, chunk);
                cp_async_16(to, paged.key_pool + place, from >= 0);
                cp_async_16(to + SIZE, paged.value_pool + place, from >= 0);
            }
            if (--left > 0) {
                ahead.next(work);
                look_up();
            }
        }
        cp_async_commit();  // one group per tile, even if empty, so that groups can be counted
    };
    look_up();
    for (int stage = 0; stage < STAGES - 1; ++stage) copy(stage);

    Reads rows;
    float scale;
    auto scale_of = [&](const float* scales) {
        bool one = std::is_same<T, Cache>::value || scales == nullptr;
        return one ? 1.0f : scales[work.per_head ? now.kv_head : 0];
    };
    auto begin_item = [&] {
        scale = paged.scale * LOG2_E * scale_of(work.key_scale);
        const T* q = paged.q + now.token * paged.q_stride + now.kv_head * group * HEAD_DIM;
        rows.begin([&](int row) { return row < group ? q + row * HEAD_DIM : nullptr; });
    };
    begin_item();
    bool first = true, cut = now.tile > 0;  // is it the share's first item; did it begin before
    for (int i = 0, stage = 0; i < count; ++i) {
        cp_async_wait<STAGES - 2>();
        __syncwarp();  // this tile has arrived for all lanes, and all are done with the last one
        copy(stage == 0 ? STAGES - 1 : stage - 1);
        const Cache* keys = stages + stage * 2 * SIZE;
        rows.template attend<TILE>(keys, keys + SIZE, now.context.length - now.tile * TILE, scale,
                                   group > 8);
        stage = stage + 1 == STAGES ? 0 : stage + 1;

        bool ends = now.tile + 1 == now.tiles, done = i + 1 == count;
        if (!ends && !done) {
            ++now.tile;
            continue;
        }
        rows.finish();
        rows.scale_by(scale_of(work.value_scale));
#pragma unroll
        for (int below = 0; below < 2; ++below) {
            int row = lane / 4 + below * 8;
            if (row >= group) continue;
            int64_t head = (int64_t)now.token * paged.heads + now.kv_head * group + row;
            int64_t part = (int64_t)(2 * worker + !first) * group + row;
            bool whole = ends && !cut;
            if (whole) {
                rows.store(paged.out + head * HEAD_DIM, below);
            } else {
                rows.store(work.parts + part * HEAD_DIM, below);
            }
            if (lane % 4 == 0)
                *(whole ? paged.lse + head : work.part_lse + part) = rows.lse(below);
        }
        if (!done) {
            now.next(work);
            begin_item();
            first = cut = false;
        }
    }
}

// A thread block merges, for one head of the group, the parts of the item in which the share of
// `worker` begins: the last part of the preceding worker, and the first parts of `worker` and of
// those after it. If several shares begin in an item, the thread block of the first merges it. A
// thread owns 4 elements of the head and every SLICES-th part.
template <typename T, typename Cache, int HEAD_DIM>
__global__ void __launch_bounds__(MERGE_THREADS, 8) paged_merge(const Shares<T, Cache> work) {
    constexpr int COLUMNS = HEAD_DIM / 4, SLICES = MERGE_THREADS / COLUMNS;
    let_next_begin();
    wait_for_last();
    const Paged<T, Cache>& paged = work.paged;
    int worker = blockIdx.x + 1, row = blockIdx.y, group = gridDim.y;
    int4 place = work.places[worker];  // item, tile, tiles, total
    if (place.y == 0) return;          // no item is cut here
    int workers = min(work.workers, place.w);
    int item_begin = begin_of(worker, workers, place.w) - place.y;
    int begin_before = begin_of(worker - 1, workers, place.w);
    if (begin_before > item_begin) return;
    // The last worker that owns a part of the item.
    int last = (int)(((int64_t)(item_begin + place.z) * workers - 1) / place.w);
    int count = last - worker + 2;
    int slice = threadIdx.x / COLUMNS, column = threadIdx.x % COLUMNS;

    float largest = LOWEST, total = 0.0f;
    float4 sum = {};
    auto add = [&](float lse, float its_total, float4 its_sum) {
        float larger = fmaxf(largest, lse), mine = expf(largest - larger);
        float its = expf(lse - larger);
        largest = larger;
        total = total * mine + its_total * its;
        sum.x = sum.x * mine + its_sum.x * its;
        sum.y = sum.y * mine + its_sum.y * its;
        sum.z = sum.z * mine + its_sum.z * its;
        sum.w = sum.w * mine + its_sum.w * its;
    };
    const float4* parts = reinterpret_cast<const float4*>(work.parts);
#pragma unroll 4
    for (int i = slice; i < count; i += SLICES) {
        bool second = i == 0 && begin_before < item_begin;
        int64_t part = (2 * (worker - 1 + i) + second) * group + row;
        add(work.part_lse[part], 1.0f, parts[part * COLUMNS + column]);
    }
    extern __shared__ __align__(128) unsigned char shared[];
    float4* sums = reinterpret_cast<float4*>(shared);
    float2* rest = reinterpret_cast<float2*>(sums + MERGE_THREADS);  // maximum and total
    sums[threadIdx.x] = sum;
    rest[threadIdx.x] = make_float2(largest, total);
    __syncthreads();
    if (slice > 0) return;
    for (int i = 1; i < SLICES; ++i) {
        int other = threadIdx.x + i * COLUMNS;
        add(rest[other].x, rest[other].y, sums[other]);
    }
    int64_t head = (int64_t)place.x / paged.kv_heads * paged.heads +
                   place.x % paged.kv_heads * group + row;
    *reinterpret_cast<uint2*>(paged.out + head * HEAD_DIM + column * 4) =
        make_uint2(pack2<T>(sum.x / total, sum.y / total), pack2<T>(sum.z / total, sum.w / total));
    if (column == 0) paged.lse[head] = largest + logf(total);
}

template <typename T, typename Cache, int HEAD_DIM>
static cudaError_t launch(const Shares<T, Cache>& work, cudaStream_t stream) {
    int bytes = STAGES * 2 * TILE * HEAD_DIM * sizeof(Cache);  // at most 48 KiB, the default limit
    cudaError_t error =
        launch_behind(paged_mma<T, Cache, HEAD_DIM>, work.workers, WARP, bytes, stream, work);
    if (error != cudaSuccess || work.workers == 1 || !work.places) return error;
    bytes = MERGE_THREADS * (sizeof(float4) + sizeof(float2));
    dim3 grid(work.workers - 1, work.paged.group());
    return launch_behind(paged_merge<T, Cache, HEAD_DIM>, grid, MERGE_THREADS, bytes, stream, work);
}

template <typename T, typename Cache>
static cudaError_t launch(const Paged<T, Cache>& paged, float* workspace, int skip, int workers,
                          cudaStream_t stream, const float* key_scale = nullptr,
                          const float* value_scale = nullptr, int per_head = 0) {
    if (paged.tokens == 0) return cudaSuccess;
    if (paged.group() > 16 || workers < 1 || skip % paged.block_size) return cudaErrorInvalidValue;
    if (!workspace && workers != paged.tokens * paged.kv_heads) return cudaErrorInvalidValue;
    if (!aligned16(paged.key_pool, paged.value_pool) || paged.q_stride % 2 ||
        reinterpret_cast<uintptr_t>(paged.q) % 4)
        return cudaErrorMisalignedAddress;
    float* parts = workspace + 4 * workers;
    float* part_lse = parts + (int64_t)2 * workers * paged.group() * paged.head_dim;
    Shares<T, Cache> work{paged, skip,     workers,   reinterpret_cast<int4*>(workspace),
                          parts, part_lse, key_scale, value_scale, per_head};
    if (paged.head_dim == 64) return launch<T, Cache, 64>(work, stream);
    if (paged.head_dim == 128) return launch<T, Cache, 128>(work, stream);
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t paged_mma_f16(
    const __half* q, const __half* key_pool, const __half* value_pool, const int* block_tables,
    const int* context_lens, const int* cu_seqlens, __half* out, float* lse, float scale,
    int tokens, int batch, int heads, int kv_heads, int head_dim, int block_size, int max_blocks,
    int64_t q_stride, float* workspace, int skip, int workers, cudaStream_t stream) {
    return launch<__half, __half>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out,
                           lse, scale, tokens, batch, heads, kv_heads, head_dim, block_size,
                           max_blocks, q_stride},
                          workspace, skip, workers, stream);
}
extern "C" cudaError_t paged_mma_bf16(
    const __nv_bfloat16* q, const __nv_bfloat16* key_pool, const __nv_bfloat16* value_pool,
    const int* block_tables, const int* context_lens, const int* cu_seqlens, __nv_bfloat16* out,
    float* lse, float scale, int tokens, int batch, int heads, int kv_heads, int head_dim,
    int block_size, int max_blocks, int64_t q_stride, float* workspace, int skip, int workers,
    cudaStream_t stream) {
    return launch<__nv_bfloat16, __nv_bfloat16>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens,
                                  out, lse, scale, tokens, batch, heads, kv_heads, head_dim,
                                  block_size, max_blocks, q_stride},
                                 workspace, skip, workers, stream);
}
extern "C" cudaError_t paged_mma_fp8_f16(
    const __half* q, const __nv_fp8_e4m3* key_pool, const __nv_fp8_e4m3* value_pool,
    const int* block_tables, const int* context_lens, const int* cu_seqlens, __half* out,
    float* lse, float scale, int tokens, int batch, int heads, int kv_heads, int head_dim,
    int block_size, int max_blocks, int64_t q_stride, const float* key_scale,
    const float* value_scale, int per_head, float* workspace, int skip, int workers,
    cudaStream_t stream) {
    return launch<__half, __nv_fp8_e4m3>(
        {q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out, lse, scale, tokens,
         batch, heads, kv_heads, head_dim, block_size, max_blocks, q_stride},
        workspace, skip, workers, stream, key_scale, value_scale, per_head);
}
extern "C" cudaError_t paged_mma_fp8_bf16(
    const __nv_bfloat16* q, const __nv_fp8_e4m3* key_pool, const __nv_fp8_e4m3* value_pool,
    const int* block_tables, const int* context_lens, const int* cu_seqlens, __nv_bfloat16* out,
    float* lse, float scale, int tokens, int batch, int heads, int kv_heads, int head_dim,
    int block_size, int max_blocks, int64_t q_stride, const float* key_scale,
    const float* value_scale, int per_head, float* workspace, int skip, int workers,
    cudaStream_t stream) {
    return launch<__nv_bfloat16, __nv_fp8_e4m3>(
        {q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out, lse, scale, tokens,
         batch, heads, kv_heads, head_dim, block_size, max_blocks, q_stride},
        workspace, skip, workers, stream, key_scale, value_scale, per_head);
}
