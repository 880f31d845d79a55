// Flash attention, rung 3 of 3: tensor cores, and two teams of warps that take turns; the engine's.
//
// Needs     sm_80 (cp.async, ldmatrix, mma.sync m16n8k16)
#include "flash.cuh"
#include "mma.cuh"

#ifndef WARP_Q_
#define WARP_Q_ 32
#endif
#ifndef WARPS_
#define WARPS_ 4
#endif
#ifndef MIN_BLOCKS_
#define MIN_BLOCKS_ 2
#endif
#ifndef LAZY_
#define LAZY_ 8.0f
#endif
#ifndef TILE_K_
#define TILE_K_ 48
#endif
#ifndef ORDER
#define ORDER 0
#endif
#ifndef TOGETHER_
#define TOGETHER_ 8
#endif

constexpr int WARPS = WARPS_, THREADS = WARPS * WARP;
constexpr int WARP_Q = WARP_Q_;              // rows of a warp
constexpr int TILE_Q = WARPS * WARP_Q;       // rows of a thread block
constexpr int TILE_K = TILE_K_;              // keys that are taken in at once
constexpr int MIN_BLOCKS = MIN_BLOCKS_;      // thread blocks that should fit on a multiprocessor
constexpr int HEADS_TOGETHER = TOGETHER_;    // KV heads whose tiles are walked together
constexpr int PIECE = 8;                     // elements in 16 bytes
constexpr int TILES_16 = WARP_Q / 16, KEY_TILES = TILE_K / 8;
constexpr float LOWEST = -3.0e38f;           // a maximum before any score: finite, as inf - inf is NaN
constexpr float LAZY = LAZY_;
constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

// Where piece `piece` of row `row` lies in a tile whose rows have PIECES pieces of 16 bytes, at
// least 8: eight neighbors, and eight below each other, lie in different banks.
template <int PIECES>
__device__ __forceinline__ int swizzle(int row, int piece) {
    return row * PIECES + (piece ^ (row & 7));
}

// DIM: elements of a row in shared memory, head_dim or more. The rest are zeros.
template <typename T, int DIM, bool PAGED>
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) flash_mma(const Flash<T> flash) {
    constexpr int PIECES = DIM / PIECE, DIM_TILES = DIM / 8, KV_TILE = TILE_K * DIM;
    extern __shared__ __align__(128) unsigned char shared[];
    T* q_tile = reinterpret_cast<T*>(shared);
    T* k_tiles = q_tile + TILE_Q * DIM;  // two of each
    T* v_tiles = k_tiles + 2 * KV_TILE;
    __shared__ int places[3][TILE_K];

    // The tiles of HEADS_TOGETHER heads are walked together, the last ones, which have most keys
    // if causal, first.
    int tiles_q = gridDim.x / flash.kv_heads, group = flash.group();
    int first_head = blockIdx.x / (HEADS_TOGETHER * tiles_q) * HEADS_TOGETHER;
    int within = blockIdx.x % (HEADS_TOGETHER * tiles_q);
    int width = min(HEADS_TOGETHER, flash.kv_heads - first_head);
    int kv_head = first_head + within % width;
    __shared__ Sequence sequence;
    if (threadIdx.x == 0) {
        Sequence found = find_sequence(flash, tiles_q - 1 - within / width, TILE_Q, group);
        sequence = found;
    }
    __syncthreads();
    int num_rows = sequence.num_queries * group - sequence.first_row;  // from this tile's first on
    if (num_rows <= 0) return;
    auto query_of = [&](int row) { return (sequence.first_row + row) / group; };
    auto head_of = [&](int row) { return kv_head * group + (sequence.first_row + row) % group; };
    int num_keys = sequence.seen_by(query_of(min(TILE_Q, num_rows) - 1), flash.causal);
    int tiles = ceil_div(num_keys, TILE_K);

    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int warp_row = warp * WARP_Q;
    bool idle = warp_row >= num_rows;

    // Copies to shared memory.
    int piece = threadIdx.x % PIECES;
    bool inside = piece * PIECE < flash.head_dim;
#pragma unroll 4
    for (int row = threadIdx.x / PIECES; row < TILE_Q; row += THREADS / PIECES) {
        bool valid = inside && row < num_rows;
        int query = valid ? query_of(row) : 0, head = valid ? head_of(row) : 0;
        cp_async_16(q_tile + swizzle<PIECES>(row, piece) * PIECE,
                    flash.q + (sequence.first_query + query) * flash.q_stride +
                        head * flash.head_dim + piece * PIECE,
                    valid);
    }
    // Of a tile of keys or values this thread copies a piece in every STEP-th row.
    constexpr int STEP = THREADS / PIECES;
    static_assert(STEP % 8 == 0 && TILE_K % STEP == 0, "a thread keeps to its column");
    int first = threadIdx.x / PIECES, to = swizzle<PIECES>(first, piece) * PIECE;
    int column = kv_head * flash.head_dim + piece * PIECE, first_key = sequence.first_key + first;
    auto copy_tile = [&](T* tiles, const T* from, int64_t stride, int tile) {
        T* target = tiles + tile % 2 * KV_TILE + to;
        const int* place = places[tile % 3] + first;
        int rows = inside ? num_keys - tile * TILE_K - first : 0;  // that there are
        from += column;
        if (!PAGED) from += (first_key + tile * TILE_K) * stride;
#pragma unroll
        for (int i = 0; i < TILE_K; i += STEP)
            cp_async_16(target + i * DIM, from + (PAGED ? place[i] : i) * stride, i < rows);
    };
    auto place_in = [&](int tile) {
        int key = tile * TILE_K + threadIdx.x;
        return key < num_keys ? sequence.place(key, flash.block_size) : 0;
    };
    bool looks_up = PAGED && threadIdx.x < TILE_K;
    if (PAGED) {
        if (looks_up) {
            places[0][threadIdx.x] = place_in(0);
            places[1][threadIdx.x] = place_in(1);
        }
        __syncthreads();
    }
    copy_tile(k_tiles, flash.k, flash.k_stride, 0);
#if ORDER >= 2
    copy_tile(v_tiles, flash.v, flash.v_stride, 0);
#endif
    cp_async_commit();

    float scores[TILES_16][KEY_TILES][4];
    uint32_t weights[TILES_16][KEY_TILES / 2][4];
    float out[TILES_16][DIM_TILES][4] = {};
    float maximum[TILES_16][2], total[TILES_16][2] = {}, factor[TILES_16][2];
    for (int i = 0; i < TILES_16; ++i)
        for (int half = 0; half < 2; ++half) maximum[i][half] = LOWEST;
    int seen_by_all = sequence.seen_by(query_of(warp_row), flash.causal);
    float scale = flash.scale;

    // Where this lane's row of the first fragment lies, in pieces. 16 rows further down is so much
    // further, 16 columns to the right is ^ 2: rows begin at multiples of 8 pieces.
    int k_place = swizzle<PIECES>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    int v_place = swizzle<PIECES>(lane % 16, lane / 16);

    const T* q_rows = q_tile + warp_row * DIM;
    auto score = [&](int tile) {
        const T* k_tile = k_tiles + tile % 2 * KV_TILE;
#pragma unroll
        for (int i = 0; i < TILES_16; ++i)
#pragma unroll
            for (int j = 0; j < KEY_TILES; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) scores[i][j][e] = 0.0f;
#pragma unroll
        for (int d = 0; d < DIM / 16; ++d) {
            uint32_t q[TILES_16][4];
#pragma unroll
            for (int i = 0; i < TILES_16; ++i)
                ldmatrix_x4(q[i], q_rows + ((v_place ^ d * 2) + i * 16 * PIECES) * PIECE);
#pragma unroll
            for (int j = 0; j < KEY_TILES / 2; ++j) {
                uint32_t k[4];
                ldmatrix_x4(k, k_tile + ((k_place ^ d * 2) + j * 16 * PIECES) * PIECE);
#pragma unroll
                for (int n = 0; n < 2; ++n)
#pragma unroll
                    for (int i = 0; i < TILES_16; ++i)
                        mma_16x8x16<T>(scores[i][j * 2 + n], q[i], k[n * 2], k[n * 2 + 1]);
            }
        }
        int first = tile * TILE_K + lane % 4 * 2;
        if ((tile + 1) * TILE_K > seen_by_all) {
#pragma unroll
            for (int i = 0; i < TILES_16; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    int query = query_of(warp_row + i * 16 + half * 8 + lane / 4);
                    int seen = sequence.seen_by(query, flash.causal) - first;
#pragma unroll
                    for (int j = 0; j < KEY_TILES; ++j)
#pragma unroll
                        for (int e = 0; e < 2; ++e)
                            if (j * 8 + e >= seen) scores[i][j][half * 2 + e] = -INFINITY;
                }
        }
    };
    // Whether the maximum moved: then out has to be multiplied by factor, once all weights so far
    // are in it.
    auto raise = [&]() {
        bool higher = false;
#pragma unroll
        for (int i = 0; i < TILES_16; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float top = scores[i][0][half * 2];
#pragma unroll
                for (int j = 0; j < KEY_TILES; ++j)
                    top = fmaxf(top, fmaxf(scores[i][j][half * 2], scores[i][j][half * 2 + 1]));
                factor[i][half] = top * scale;
                higher |= factor[i][half] > maximum[i][half] + LAZY;
            }
        bool raised = __any_sync(ALL_LANES, higher);
        if (raised) {
#pragma unroll
            for (int i = 0; i < TILES_16; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float top = factor[i][half];
                    top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
                    top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
                    top = fmaxf(top, maximum[i][half]);
                    factor[i][half] = exp2_approx(maximum[i][half] - top);
                    maximum[i][half] = top;
                    total[i][half] *= factor[i][half];
                }
        }
        return raised;
    };
    auto rescale = [&]() {
#pragma unroll
        for (int i = 0; i < TILES_16; ++i)
#pragma unroll
            for (int d = 0; d < DIM_TILES; ++d)
#pragma unroll
                for (int e = 0; e < 4; ++e) out[i][d][e] *= factor[i][e / 2];
    };
    auto soften = [&](int k) {
#pragma unroll
        for (int i = 0; i < TILES_16; ++i)
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                int half = part % 2;
                const float* two = &scores[i][k * 2 + part / 2][half * 2];
                float low = exp2_approx(two[0] * scale - maximum[i][half]);
                float high = exp2_approx(two[1] * scale - maximum[i][half]);
                total[i][half] += low + high;
                weights[i][k][part] = pack2<T>(low, high);
            }
    };
    auto add_values = [&](int tile, int k) {
        const T* v_tile = v_tiles + tile % 2 * KV_TILE;
#pragma unroll
        for (int d = 0; d < DIM_TILES / 2; ++d) {
            uint32_t v[4];
            ldmatrix_x4_trans(v, v_tile + ((v_place ^ d * 2) + k * 16 * PIECES) * PIECE);
#pragma unroll
            for (int n = 0; n < 2; ++n)
#pragma unroll
                for (int i = 0; i < TILES_16; ++i)
                    mma_16x8x16<T>(out[i][d * 2 + n], weights[i][k], v[n * 2], v[n * 2 + 1]);
        }
    };

    auto next_tiles = [&](int tile) {
        cp_async_wait<0>();
        __syncthreads();
        int place = looks_up ? place_in(tile + 2) : 0;
#if ORDER >= 2
        if (tile + 1 < tiles) copy_tile(v_tiles, flash.v, flash.v_stride, tile + 1);
#else
        if (tile < tiles) copy_tile(v_tiles, flash.v, flash.v_stride, tile);
#endif
        if (tile + 1 < tiles) copy_tile(k_tiles, flash.k, flash.k_stride, tile + 1);
        cp_async_commit();
        if (looks_up) places[(tile + 2) % 3][threadIdx.x] = place;
    };
    if (tiles > 0) {
#if ORDER < 2
        next_tiles(0);
        score(0);
        if (raise()) rescale();
#pragma unroll
        for (int k = 0; k < TILE_K / 16; ++k) soften(k);
        for (int tile = 1; tile < tiles; ++tile) {
            next_tiles(tile);
            if (idle) continue;
#if ORDER == 0
#pragma unroll
            for (int k = 0; k < TILE_K / 16; ++k) add_values(tile - 1, k);
            score(tile);
            if (raise()) rescale();
#pragma unroll
            for (int k = 0; k < TILE_K / 16; ++k) soften(k);
#else
            score(tile);
            bool raised = raise();
#pragma unroll
            for (int k = 0; k < TILE_K / 16; ++k) {
                add_values(tile - 1, k);
                soften(k);
            }
            if (raised) rescale();
#endif
        }
        cp_async_wait<0>();
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE_K / 16; ++k) add_values(tiles - 1, k);
#else
        for (int tile = 0; tile < tiles; ++tile) {
            next_tiles(tile);
            if (idle) continue;
            score(tile);
            if (raise()) rescale();
#if ORDER == 2
#pragma unroll
            for (int k = 0; k < TILE_K / 16; ++k) soften(k);
#pragma unroll
            for (int k = 0; k < TILE_K / 16; ++k) add_values(tile, k);
#else
#pragma unroll
            for (int k = 0; k < TILE_K / 16; ++k) {
                soften(k);
                add_values(tile, k);
            }
#endif
        }
#endif
    }
    cp_async_wait<0>();
    if (idle) return;

    // Out through the memory of this warp's queries.
    T* part = q_tile + warp_row * DIM;
    int group_row = lane / 4, pair = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILES_16; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = total[i][half];
            sum += __shfl_xor_sync(ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ALL_LANES, sum, 2);
            float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
            int row = i * 16 + half * 8 + group_row;
            if (lane % 4 == 0 && warp_row + row < num_rows)
                flash.lse[(size_t)(sequence.first_query + query_of(warp_row + row)) * flash.heads +
                          head_of(warp_row + row)] = (maximum[i][half] + log2f(sum)) * LN_2;
#pragma unroll
            for (int d = 0; d < DIM_TILES; ++d)
                *reinterpret_cast<uint32_t*>(part + swizzle<PIECES>(row, d) * PIECE + pair) =
                    pack2<T>(out[i][d][half * 2] * factor, out[i][d][half * 2 + 1] * factor);
        }
    __syncwarp();
    int part_piece = lane % PIECES;
    if (part_piece * PIECE >= flash.head_dim) return;
#pragma unroll 4
    for (int row = lane / PIECES; row < min(WARP_Q, num_rows - warp_row); row += WARP / PIECES) {
        size_t at = (size_t)(sequence.first_query + query_of(warp_row + row)) * flash.heads +
                    head_of(warp_row + row);
        store16(flash.out + at * flash.head_dim + part_piece * PIECE,
                load16(part + swizzle<PIECES>(row, part_piece) * PIECE));
    }
}

template <typename T, int DIM, bool PAGED>
static cudaError_t launch(const Flash<T>& flash, cudaStream_t stream) {
    int bytes = (TILE_Q + 4 * TILE_K) * DIM * sizeof(T);
    cudaError_t error = cudaFuncSetAttribute(
        flash_mma<T, DIM, PAGED>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    int tiles = most_tiles(flash, TILE_Q, flash.group());
    flash_mma<T, DIM, PAGED><<<tiles * flash.kv_heads, THREADS, bytes, stream>>>(flash);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t launch(const Flash<T>& flash, cudaStream_t stream) {
    if (flash.tokens == 0 || flash.heads == 0 || flash.batch == 0) return cudaSuccess;
    if (flash.head_dim > 128) return cudaErrorInvalidValue;
    if ((flash.head_dim | flash.q_stride | flash.k_stride | flash.v_stride) % PIECE ||
        !aligned16(flash.q, flash.k, flash.v, flash.out))
        return cudaErrorMisalignedAddress;
    bool paged = flash.block_tables != nullptr;
    if (flash.head_dim <= 64)
        return paged ? launch<T, 64, true>(flash, stream) : launch<T, 64, false>(flash, stream);
    return paged ? launch<T, 128, true>(flash, stream) : launch<T, 128, false>(flash, stream);
}

extern "C" cudaError_t flash_mma_f16(const __half* q, const __half* k, const __half* v,
                                     __half* out, float* lse, const int* starts_q,
                                     const int* starts_k, const int* block_tables,
                                     const int* context_lens, int batch, int tokens, int keys,
                                     int heads, int kv_heads, int head_dim, int64_t q_stride,
                                     int64_t k_stride, int64_t v_stride, int block_size,
                                     int max_blocks, float scale, int causal,
                                     cudaStream_t stream) {
    Flash<__half> flash = {q, k, v, out, lse, starts_q, starts_k, block_tables, context_lens,
                           batch, tokens, keys, heads, kv_heads, head_dim, q_stride, k_stride,
                           v_stride, block_size, max_blocks, scale, causal};
    flash.scale *= LOG2_E;
    return launch(flash, stream);
}
extern "C" cudaError_t flash_mma_bf16(const __nv_bfloat16* q, const __nv_bfloat16* k,
                                      const __nv_bfloat16* v, __nv_bfloat16* out, float* lse,
                                      const int* starts_q, const int* starts_k,
                                      const int* block_tables, const int* context_lens, int batch,
                                      int tokens, int keys, int heads, int kv_heads, int head_dim,
                                      int64_t q_stride, int64_t k_stride, int64_t v_stride,
                                      int block_size, int max_blocks, float scale, int causal,
                                      cudaStream_t stream) {
    Flash<__nv_bfloat16> flash = {q, k, v, out, lse, starts_q, starts_k, block_tables,
                                  context_lens, batch, tokens, keys, heads, kv_heads, head_dim,
                                  q_stride, k_stride, v_stride, block_size, max_blocks, scale,
                                  causal};
    flash.scale *= LOG2_E;
    return launch(flash, stream);
}
