// Paged attention, rung 4 of 4: tensor cores, and equal shares of all contexts; the engine's.
//
// Needs     sm_80 (cp.async, ldmatrix, mma.sync m16n8k16) and 48 KiB of shared memory
// Computes  attention of single queries over the paged cache, as in paged.cuh; without the first
//           `skip` tokens of every context, a multiple of block_size
// Shapes    as in paged.cuh; float16 or bfloat16, head_dim 64 or 128, at most 16 query heads a KV
//           head; pools at multiples of 16 bytes, queries of 4; fewer than 2^31 slots;
//           workspace: workers × (4 + 2 × group × (head_dim + 1)) floats
// Owns      a thread block, of one warp: one n-th of all tiles of 32 keys, n being `workers`, for
//           the query heads of a KV head: they are rows of a tile of 16, what is missing is zeros
// Moves     keys and values once, q, out and lse; and for each warp at most two partial states
// Reaches   bfloat16, 32 query heads, 8 KV heads, head_dim 128, blocks of 16, on an H200: 0.88 of a
//           copy at batch 16, context 4096. An earlier version, the same but for its merge, beside
//           the better of FlashInfer's kernels: 0.97 of it at batch 64, context 4096 (0.96 of a
//           copy), 0.98 at 16 and 8192 (0.91 of a copy), 0.97 at 1 and 32768, 1.43 where one
//           context has 65536 tokens and 31 have 512. A merge for each head, as it is now, saved
//           1.8 of 45.6 µs at 1 and 32768 (notebooks/data/18_paged_h200.json).
// Oracle    attention in float64 (tests/test_paged.py)
// Idea      three.
//           - The work is laid out in one line: token after token, KV head after KV head, tile
//             after tile. Each warp finds its share of the line from context_lens, so all are done
//             at the same time, be the contexts as different as they like, and nobody on the host
//             has to know them. What a boundary between shares cuts, a second kernel merges.
//           - A warp copies its own tiles and waits for no other: there is no barrier. The copies
//             of the STAGES - 1 tiles to come are under way all the time, across the ends of
//             contexts, and entries of the tables are read a tile earlier than they are needed.
//           - Scores and sums are products of matrices, of 16 × 16 × head_dim.
#include "follow.cuh"
#include "mma.cuh"
#include "paged/rows.cuh"
#include "paged/shares.cuh"

constexpr int TILE = 32;            // keys of a tile
constexpr int STAGES = 3;           // tiles of a warp in shared memory
constexpr int MERGE_THREADS = 128;  // of a thread block that merges

static_assert(TILE <= WARP, "a lane looks up a key of a tile");

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(WARP) paged_mma(const Work<T, TILE> work) {
    extern __shared__ __align__(128) unsigned char shared[];
    constexpr int CHUNKS = HEAD_DIM / CHUNK, COPY_ROWS = WARP / CHUNKS;  // rows of a warp's copy
    constexpr int SIZE = TILE * HEAD_DIM;
    const Paged<T>& paged = work.paged;
    T* stages = reinterpret_cast<T*>(shared);
    int worker = blockIdx.x, lane = threadIdx.x, group = paged.group();

    let_next_begin();
    int count, total;
    Place now = find_share(work, worker, count, total);
    if (lane == 0)
        work.places[worker] = make_int4(now.token * paged.kv_heads + now.kv_head, now.tile,
                                        count ? now.tiles : 0, total);
    if (count == 0) return;

    Place ahead = now;  // what is copied next
    int left = count, slot;
    auto look_up = [&] {
        int key = ahead.tile * TILE + lane % TILE;
        slot = key < ahead.context.length ? (int)find_slot(ahead.context, key, paged.block_size)
                                          : -1;
    };
    auto copy = [&](int stage) {
        if (left > 0) {
            T* keys = stages + stage * 2 * SIZE;
            int chunk = lane % CHUNKS, row_size = paged.kv_heads * HEAD_DIM;
            int column = ahead.kv_head * HEAD_DIM + chunk * CHUNK;
#pragma unroll
            for (int i = 0; i < TILE; i += COPY_ROWS) {
                int row = i + lane / CHUNKS, from = __shfl_sync(ALL_LANES, slot, row);
                int64_t place = (int64_t)max(from, 0) * row_size + column;
                T* to = keys + chunk_at<HEAD_DIM>(row, chunk);
                cp_async_16(to, paged.key_pool + place, from >= 0);
                cp_async_16(to + SIZE, paged.value_pool + place, from >= 0);
            }
            if (--left > 0) {
                ahead.next(work);
                look_up();
            }
        }
        cp_async_commit();  // a group a tile, be it empty: so they can be counted
    };
    look_up();
    for (int stage = 0; stage < STAGES - 1; ++stage) copy(stage);

    Rows<T, HEAD_DIM> rows;
    auto begin_item = [&] {
        const T* q = paged.q + now.token * paged.q_stride + now.kv_head * group * HEAD_DIM;
        rows.begin([&](int row) { return row < group ? q + row * HEAD_DIM : nullptr; });
    };
    begin_item();
    float scale = paged.scale * LOG2_E;
    bool first = true, cut = now.tile > 0;  // the share's first item; one that began before it
    for (int i = 0, stage = 0; i < count; ++i) {
        cp_async_wait<STAGES - 2>();
        __syncwarp();  // this tile is there, for all lanes; and all are done with the last one
        copy(stage == 0 ? STAGES - 1 : stage - 1);
        const T* keys = stages + stage * 2 * SIZE;
        rows.template attend<TILE>(keys, keys + SIZE, now.context.length - now.tile * TILE, scale);
        stage = stage + 1 == STAGES ? 0 : stage + 1;

        bool ends = now.tile + 1 == now.tiles, done = i + 1 == count;
        if (!ends && !done) {
            ++now.tile;
            continue;
        }
        rows.finish();
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

// A thread block merges, for a head of the group, the parts of the item in which the share of
// `worker` begins: the last part of the worker before, the first ones of it and of those behind it.
// If several shares begin in an item, the first of them does it. A thread has 4 numbers of the head,
// and every so many-th part.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(MERGE_THREADS, 8) paged_merge(const Work<T, TILE> work) {
    constexpr int COLUMNS = HEAD_DIM / 4, SLICES = MERGE_THREADS / COLUMNS;
    let_next_begin();
    wait_for_last();
    const Paged<T>& paged = work.paged;
    int worker = blockIdx.x + 1, row = blockIdx.y, group = gridDim.y;
    int4 place = work.places[worker];  // item, tile, tiles, total
    if (place.y == 0) return;          // nothing is cut here
    int workers = min(work.workers, place.w);
    int item_begin = begin_of(worker, workers, place.w) - place.y;
    int begin_before = begin_of(worker - 1, workers, place.w);
    if (begin_before > item_begin) return;
    // The last worker that has a part of it.
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

template <typename T, int HEAD_DIM>
static cudaError_t launch(const Work<T, TILE>& work, cudaStream_t stream) {
    int bytes = STAGES * 2 * TILE * HEAD_DIM * sizeof(T);  // 48 KiB at most: nobody has to ask
    paged_mma<T, HEAD_DIM><<<work.workers, WARP, bytes, stream>>>(work);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess || work.workers == 1) return error;
    bytes = MERGE_THREADS * (sizeof(float4) + sizeof(float2));
    dim3 grid(work.workers - 1, work.paged.group());
    return launch_behind(paged_merge<T, HEAD_DIM>, grid, MERGE_THREADS, bytes, stream, work);
}

template <typename T>
static cudaError_t launch(const Paged<T>& paged, float* workspace, int skip, int workers,
                          cudaStream_t stream) {
    if (paged.tokens == 0) return cudaSuccess;
    if (paged.group() > 16 || workers < 1 || skip % paged.block_size) return cudaErrorInvalidValue;
    if (!aligned16(paged.key_pool, paged.value_pool) || paged.q_stride % 2 ||
        reinterpret_cast<uintptr_t>(paged.q) % 4)
        return cudaErrorMisalignedAddress;
    float* parts = workspace + 4 * workers;
    float* part_lse = parts + (int64_t)2 * workers * paged.group() * paged.head_dim;
    Work<T, TILE> work{paged, skip, workers, reinterpret_cast<int4*>(workspace), parts, part_lse};
    if (paged.head_dim == 64) return launch<T, 64>(work, stream);
    if (paged.head_dim == 128) return launch<T, 128>(work, stream);
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t paged_mma_f16(
    const __half* q, const __half* key_pool, const __half* value_pool, const int* block_tables,
    const int* context_lens, const int* cu_seqlens, __half* out, float* lse, float scale,
    int tokens, int batch, int heads, int kv_heads, int head_dim, int block_size, int max_blocks,
    int64_t q_stride, float* workspace, int skip, int workers, cudaStream_t stream) {
    return launch<__half>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens, out,
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
    return launch<__nv_bfloat16>({q, key_pool, value_pool, block_tables, context_lens, cu_seqlens,
                                  out, lse, scale, tokens, batch, heads, kv_heads, head_dim,
                                  block_size, max_blocks, q_stride},
                                 workspace, skip, workers, stream);
}
