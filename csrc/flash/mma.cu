// Flash attention, rung 3 of 3: tensor cores that multiply while the weights are computed; the
// kernel that the engine uses.
//
// Needs     sm_80 (cp.async, ldmatrix, mma.sync m16n8k16); 96 KiB of shared memory if head_dim is
//           above 64, else 48 KiB
// Computes  softmax(q kᵀ · scale) v and the log-sum-exp of each row, as specified in flash.cuh.
//           Weights are rounded to the dtype of v; all sums are float32.
// Shapes    as specified in flash.cuh, float16 or bfloat16; head_dim at most 128, else
//           cudaErrorInvalidValue; head_dim and the strides multiples of 8, and q, k, v and out at
//           multiples of 16 bytes, else cudaErrorMisalignedAddress
//           The launchers `_fp8` read pools of e4m3, 8 bytes per chunk.
// Owns      each thread block of 4 warps: 128 rows of a KV head, where a row is a query of one of
//           the query heads that share it; each warp: 32 rows; each lane: in each of 4 rows, a
//           quarter of the scores of a tile of keys and a quarter of the output, where mma.sync
//           leaves them
// Moves     q and out once; keys and values once per 128 rows: with head_dim 128 and 4096 keys that
//           is 128 operations per byte, from the L2 cache if the rows that share keys run at the
//           same time
// Reaches   398 TFLOP/s, 382 if causal, with 32 heads of 128 and 4 × 4096 tokens in bfloat16 on an
//           H200: 1.21 and 1.23 of FlashAttention-2; with heads of 64, 357 and 339 TFLOP/s, 1.18
//           and 1.19 of it
// Oracle    attention in float64, in tests/test_flash_kernels.py
// Idea      each of four measures removes one reason for the tensor cores to wait:
//           - The scores of a tile are left where the next mma.sync expects the weights: the
//             columns that a lane holds of C, packed in pairs, are those that it must hold of A. So
//             the weights never leave the registers.
//           - The weights of 16 keys are computed and multiplied by their values: while the tensor
//             cores multiply for 16 keys, the warp computes the exponentials of the next 16.
//           - out is rescaled only when a maximum has grown by more than LAZY powers of 2. Until
//             then the old maximum is used: a weight may reach 2^LAZY, which every dtype can hold.
//           - The next tile is copied while this one is used, with one barrier per tile.
#include <cuda_fp8.h>

#include "flash/flash.cuh"
#include "mma.cuh"

constexpr int WARPS = 4, THREADS = WARPS * WARP;
constexpr int WARP_Q = 32, TILE_Q = WARPS * WARP_Q;  // rows per warp and per thread block
constexpr int MIN_BLOCKS = 2;       // thread blocks per streaming multiprocessor that must fit
constexpr int HEADS_TOGETHER = 16;  // KV heads that consecutive thread blocks alternate between
constexpr float LAZY = 8.0f;        // a weight may reach 2 to this power

constexpr int CHUNK = 8;                // elements in 16 bytes
constexpr int ROW_TILES = WARP_Q / 16;  // of mma.sync

// The place of chunk `chunk` of row `row` in a tile in shared memory, counted in chunks. A row has
// CHUNKS 16-byte chunks, a multiple of 8. The same chunk of 8 successive rows lies in different
// banks. The place 16 rows down is place + 16 * CHUNKS, and the place d chunks to the right, for
// even d and chunk < 2, is place ^ d.
template <int CHUNKS>
__device__ __forceinline__ int swizzle(int row, int chunk) {
    return row * CHUNKS + (chunk ^ row % 8);
}

// Keys per tile: 16 KiB of them.
template <int DIM>
__host__ __device__ constexpr int tile_k() {
    return 8192 / DIM;
}

// As cp_async_16 of mma.cuh, for 8 codes of 8 bits, which become T on the way. That is exact, and no
// asynchronous copy can do it: the thread waits for the load.
template <typename T>
__device__ __forceinline__ void cp_async_16(T* to, const __nv_fp8_e4m3* from, bool valid) {
    uint2 codes = valid ? *reinterpret_cast<const uint2*>(from) : make_uint2(0, 0);
    const __nv_fp8x2_e4m3* pairs = reinterpret_cast<const __nv_fp8x2_e4m3*>(&codes);
    uint32_t wide[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float2 both = float2(pairs[i]);
        wide[i] = pack2<T>(both.x, both.y);
    }
    *reinterpret_cast<uint4*>(to) = make_uint4(wide[0], wide[1], wide[2], wide[3]);
}

// DIM is the length of a row in shared memory: head_dim, padded with zeros to 64 or 128.
template <typename T, typename Cache, int DIM, bool PAGED>
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS) flash_mma(const Flash<T, Cache> flash) {
    constexpr int TILE_K = tile_k<DIM>(), KV_TILE = TILE_K * DIM;
    constexpr int CHUNKS = DIM / CHUNK, DIM_TILES = DIM / 8, KEY_TILES = TILE_K / 8;
    extern __shared__ __align__(128) unsigned char shared[];
    T* q_tile = reinterpret_cast<T*>(shared);
    T* k_tiles = q_tile + TILE_Q * DIM;  // two
    T* v_tiles = k_tiles + 2 * KV_TILE;
    __shared__ int places[3][TILE_K];  // of the keys of three tiles, if paged

    // If causal, the last tiles of a sequence have the most keys, so they start first; otherwise
    // the launch would end with them alone. Each tile is done for HEADS_TOGETHER heads before the
    // next tile. More heads would have more keys and values than the L2 cache holds.
    int tiles_q = gridDim.x / flash.kv_heads, group = flash.group();
    int first_head = blockIdx.x / (HEADS_TOGETHER * tiles_q) * HEADS_TOGETHER;
    int within = blockIdx.x % (HEADS_TOGETHER * tiles_q);
    int width = min(HEADS_TOGETHER, flash.kv_heads - first_head);
    int kv_head = first_head + within % width;
    // Kept in shared memory to save registers: the sequence, and for each row its token, its head
    // and the number of keys that it sees.
    __shared__ Sequence sequence;
    __shared__ int tokens[TILE_Q], heads[TILE_Q], seen[TILE_Q], num_keys;
    if (threadIdx.x == 0) {
        Sequence found = find_sequence(flash, tiles_q - 1 - within / width, TILE_Q, group);
        sequence = found;
    }
    __syncthreads();
    int num_rows = min(TILE_Q, sequence.num_queries * group - sequence.first_row);
    if (num_rows <= 0) return;
    static_assert(TILE_Q == THREADS, "one thread per row");
    // exercise 18.3 begin: what row threadIdx.x of the tile is, and how many keys the tile needs
    int row_of_all = sequence.first_row + threadIdx.x;
    tokens[threadIdx.x] = sequence.first_query + row_of_all / group;
    heads[threadIdx.x] = kv_head * group + row_of_all % group;
    seen[threadIdx.x] = sequence.seen_by(row_of_all / group, flash.causal);
    if (threadIdx.x == num_rows - 1) num_keys = seen[threadIdx.x];
    // exercise 18.3 end
    __syncthreads();

    int warp_row = threadIdx.x / WARP * WARP_Q, lane = threadIdx.x % WARP;
    bool idle = warp_row >= num_rows;

    // This thread copies one chunk in every STEP-th row of each tile.
    constexpr int STEP = THREADS / CHUNKS;
    static_assert(STEP % 8 == 0 && TILE_K % STEP == 0, "a thread stays in its column");
    int first = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    int to = swizzle<CHUNKS>(first, chunk) * CHUNK;
    bool inside = chunk * CHUNK < flash.head_dim;
#pragma unroll 4
    for (int i = 0; i < TILE_Q; i += STEP) {
        bool valid = inside && first + i < num_rows;
        int row = valid ? first + i : 0;
        cp_async_16(q_tile + to + i * DIM,
                    flash.q + tokens[row] * flash.q_stride + heads[row] * flash.head_dim +
                        chunk * CHUNK,
                    valid);
    }
    int column = kv_head * flash.head_dim + chunk * CHUNK;
    auto copy_tile = [&](T* tiles, const Cache* from, int64_t stride, int tile) {
        T* target = tiles + tile % 2 * KV_TILE + to;
        const int* place = places[tile % 3] + first;
        int rows = inside ? num_keys - tile * TILE_K - first : 0;  // that exist
        from += column;
        if (!PAGED) from += (sequence.first_key + first + tile * TILE_K) * stride;
#pragma unroll
        for (int i = 0; i < TILE_K; i += STEP)
            cp_async_16(target + i * DIM, from + (PAGED ? place[i] : i) * stride, i < rows);
    };
    auto copy_tiles = [&](int tile) {
        copy_tile(k_tiles, flash.k, flash.k_stride, tile);
        copy_tile(v_tiles, flash.v, flash.v_stride, tile);
        cp_async_commit();
    };
    // Each thread looks up one key, two tiles before the tile is used and one before it is copied.
    bool looks_up = PAGED && threadIdx.x < TILE_K;
    auto place_in = [&](int tile) {
        int key = tile * TILE_K + threadIdx.x;
        return looks_up && key < num_keys ? sequence.place(key, flash.block_size) : 0;
    };
    if (PAGED) {
        int now = place_in(0), next = place_in(1);
        if (looks_up) places[0][threadIdx.x] = now, places[1][threadIdx.x] = next;
        __syncthreads();
    }
    copy_tiles(0);

    float scores[ROW_TILES][KEY_TILES][4], out[ROW_TILES][DIM_TILES][4] = {};
    float maximum[ROW_TILES][2], total[ROW_TILES][2] = {};  // of rows i * 16 + half * 8 + lane / 4
    for (int i = 0; i < ROW_TILES; ++i) maximum[i][0] = maximum[i][1] = LOWEST;
    // The place of the lane's row in the first fragment of keys, and of queries and values.
    int k_place = swizzle<CHUNKS>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    int place = swizzle<CHUNKS>(lane % 16, lane / 16);

    auto multiply_keys = [&](int tile) {
        const T* k_tile = k_tiles + tile % 2 * KV_TILE;
        const T* q_rows = q_tile + warp_row * DIM;
#pragma unroll
        for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
            for (int j = 0; j < KEY_TILES; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) scores[i][j][e] = 0.0f;
#pragma unroll 4  // not 8, at head_dim 128: that takes more registers than there are
        for (int d = 0; d < CHUNKS; d += 2) {
            uint32_t q[ROW_TILES][4], k[4];
#pragma unroll
            for (int i = 0; i < ROW_TILES; ++i)
                ldmatrix_x4(q[i], q_rows + ((place ^ d) + i * 16 * CHUNKS) * CHUNK);
#pragma unroll
            for (int j = 0; j < KEY_TILES; j += 2) {
                ldmatrix_x4(k, k_tile + ((k_place ^ d) + j * 8 * CHUNKS) * CHUNK);
#pragma unroll
                for (int n = 0; n < 2; ++n)
#pragma unroll
                    for (int i = 0; i < ROW_TILES; ++i)
                        mma_16x8x16<T>(scores[i][j + n], q[i], k[n * 2], k[n * 2 + 1]);
            }
        }
    };
    auto mask = [&](int tile) {
        // exercise 18.3 begin: -INFINITY for each score of a key that its row does not see
        int key = tile * TILE_K + lane % 4 * 2;  // the lane's first key
#pragma unroll
        for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int keys = seen[warp_row + i * 16 + half * 8 + lane / 4] - key;
#pragma unroll
                for (int j = 0; j < KEY_TILES; ++j)
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        if (j * 8 + e >= keys) scores[i][j][half * 2 + e] = -INFINITY;
            }
        // exercise 18.3 end
    };
    auto raise_maximum = [&] {
        float highest[ROW_TILES][2];
        bool higher = false;
#pragma unroll
        for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float top = -INFINITY;
#pragma unroll
                for (int j = 0; j < KEY_TILES; ++j)
                    top = fmaxf(top, fmaxf(scores[i][j][half * 2], scores[i][j][half * 2 + 1]));
                highest[i][half] = top * flash.scale;
                higher |= highest[i][half] > maximum[i][half] + LAZY;
            }
        if (!__any_sync(ALL_LANES, higher)) return;
#pragma unroll
        for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float top = highest[i][half];  // of the four lanes that share the row
                top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
                top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
                top = fmaxf(top, maximum[i][half]);
                float factor = exp2_approx(maximum[i][half] - top);
                maximum[i][half] = top;
                total[i][half] *= factor;
#pragma unroll
                for (int d = 0; d < DIM_TILES; ++d)
                    out[i][d][half * 2] *= factor, out[i][d][half * 2 + 1] *= factor;
            }
    };
    // The weights of the 16 keys from tile j of the scores on, in the layout of operand A.
    auto weigh = [&](int j, uint32_t (&weights)[ROW_TILES][4]) {
        // exercise 18.4 begin: scores to weights, in pairs, where mma.sync expects operand A
#pragma unroll
        for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                int half = part % 2;
                const float* two = &scores[i][j + part / 2][half * 2];
                float low = exp2_approx(two[0] * flash.scale - maximum[i][half]);
                float high = exp2_approx(two[1] * flash.scale - maximum[i][half]);
                total[i][half] += low + high;
                weights[i][part] = pack2<T>(low, high);
            }
        // exercise 18.4 end
    };
    auto add_values = [&](int tile, int j, const uint32_t (&weights)[ROW_TILES][4]) {
        const T* v_tile = v_tiles + tile % 2 * KV_TILE;
        // exercise 18.4 begin: out += the weights of 16 keys × their values
        uint32_t v[4];
#pragma unroll
        for (int d = 0; d < CHUNKS; d += 2) {
            ldmatrix_x4_trans(v, v_tile + ((place ^ d) + j * 8 * CHUNKS) * CHUNK);
#pragma unroll
            for (int n = 0; n < 2; ++n)
#pragma unroll
                for (int i = 0; i < ROW_TILES; ++i)
                    mma_16x8x16<T>(out[i][d + n], weights[i], v[n * 2], v[n * 2 + 1]);
        }
        // exercise 18.4 end
    };

    for (int tile = 0; tile * TILE_K < num_keys; ++tile) {
        int place_later = place_in(tile + 2);
        cp_async_wait<0>();
        __syncthreads();  // this tile has arrived, and all warps are done with the one before
        copy_tiles(tile + 1);
        if (!idle) {
            multiply_keys(tile);
            if ((tile + 1) * TILE_K > seen[warp_row]) mask(tile);
            raise_maximum();
            uint32_t weights[KEY_TILES / 2][ROW_TILES][4];
#pragma unroll
            for (int j = 0; j < KEY_TILES; j += 2) {
                weigh(j, weights[j / 2]);
                add_values(tile, j, weights[j / 2]);
            }
        }
        if (looks_up) places[(tile + 2) % 3][threadIdx.x] = place_later;
    }
    cp_async_wait<0>();
    __syncthreads();  // no copy is in flight to the memory that out will use
    if (idle) return;

    // Write out through the memory of this warp's queries, so that a lane stores 16 bytes.
    T* part = q_tile + warp_row * DIM;
    auto result_of = [&](int row) {  // where a row of the warp lies in out and lse
        return (size_t)tokens[warp_row + row] * flash.heads + heads[warp_row + row];
    };
#pragma unroll
    for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int row = i * 16 + half * 8 + lane / 4;
            float sum = total[i][half];
            sum += __shfl_xor_sync(ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ALL_LANES, sum, 2);
            float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
            if (lane % 4 == 0 && warp_row + row < num_rows)
                flash.lse[result_of(row)] = (maximum[i][half] + log2f(sum)) * LN_2;
#pragma unroll
            for (int d = 0; d < DIM_TILES; ++d)
                *reinterpret_cast<uint32_t*>(part + swizzle<CHUNKS>(row, d) * CHUNK +
                                             lane % 4 * 2) =
                    pack2<T>(out[i][d][half * 2] * factor, out[i][d][half * 2 + 1] * factor);
        }
    __syncwarp();
    int out_chunk = lane % CHUNKS, rows = min(WARP_Q, num_rows - warp_row);
    if (out_chunk * CHUNK >= flash.head_dim) return;
    for (int row = lane / CHUNKS; row < rows; row += WARP / CHUNKS)
        store16(flash.out + result_of(row) * flash.head_dim + out_chunk * CHUNK,
                load16(part + swizzle<CHUNKS>(row, out_chunk) * CHUNK));
}

template <int DIM, bool PAGED, typename T, typename Cache>
static cudaError_t launch(const Flash<T, Cache>& flash, cudaStream_t stream) {
    int bytes = (TILE_Q + 4 * tile_k<DIM>()) * DIM * sizeof(T);
    cudaError_t error = cudaFuncSetAttribute(
        flash_mma<T, Cache, DIM, PAGED>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    int tiles = most_tiles(flash, TILE_Q, flash.group());
    flash_mma<T, Cache, DIM, PAGED><<<tiles * flash.kv_heads, THREADS, bytes, stream>>>(flash);
    return cudaGetLastError();
}

template <typename T, typename Cache>
static cudaError_t launch(Flash<T, Cache> flash, cudaStream_t stream) {
    if (flash.tokens == 0 || flash.heads == 0 || flash.batch == 0) return cudaSuccess;
    if (flash.head_dim > 128) return cudaErrorInvalidValue;
    if ((flash.head_dim | flash.q_stride | flash.k_stride | flash.v_stride) % CHUNK ||
        !aligned16(flash.q, flash.k, flash.v, flash.out))
        return cudaErrorMisalignedAddress;
    flash.scale *= LOG2_E;  // exponentials are powers of 2
    bool paged = flash.block_tables != nullptr, narrow = flash.head_dim <= 64;
    if (paged) return narrow ? launch<64, true>(flash, stream) : launch<128, true>(flash, stream);
    if constexpr (sizeof(Cache) == sizeof(T))
        return narrow ? launch<64, false>(flash, stream) : launch<128, false>(flash, stream);
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t flash_mma_f16(const __half* q, const __half* k, const __half* v,
                                     __half* out, float* lse, const int* starts_q,
                                     const int* starts_k, const int* block_tables,
                                     const int* context_lens, int batch, int tokens, int keys,
                                     int heads, int kv_heads, int head_dim, int64_t q_stride,
                                     int64_t k_stride, int64_t v_stride, int block_size,
                                     int max_blocks, float scale, int causal,
                                     cudaStream_t stream) {
    return launch(Flash<__half>{q, k, v, out, lse, starts_q, starts_k, block_tables, context_lens,
                                batch, tokens, keys, heads, kv_heads, head_dim, q_stride, k_stride,
                                v_stride, block_size, max_blocks, scale, causal},
                  stream);
}
extern "C" cudaError_t flash_mma_bf16(const __nv_bfloat16* q, const __nv_bfloat16* k,
                                      const __nv_bfloat16* v, __nv_bfloat16* out, float* lse,
                                      const int* starts_q, const int* starts_k,
                                      const int* block_tables, const int* context_lens, int batch,
                                      int tokens, int keys, int heads, int kv_heads, int head_dim,
                                      int64_t q_stride, int64_t k_stride, int64_t v_stride,
                                      int block_size, int max_blocks, float scale, int causal,
                                      cudaStream_t stream) {
    return launch(Flash<__nv_bfloat16>{q, k, v, out, lse, starts_q, starts_k, block_tables,
                                       context_lens, batch, tokens, keys, heads, kv_heads, head_dim,
                                       q_stride, k_stride, v_stride, block_size, max_blocks, scale,
                                       causal},
                  stream);
}
extern "C" cudaError_t flash_mma_fp8_f16(
    const __half* q, const __nv_fp8_e4m3* k, const __nv_fp8_e4m3* v, __half* out, float* lse,
    const int* starts_q, const int* starts_k, const int* block_tables, const int* context_lens,
    int batch, int tokens, int keys, int heads, int kv_heads, int head_dim, int64_t q_stride,
    int64_t k_stride, int64_t v_stride, int block_size, int max_blocks, float scale, int causal,
    cudaStream_t stream) {
    return launch(Flash<__half, __nv_fp8_e4m3>{
                      q, k, v, out, lse, starts_q, starts_k, block_tables, context_lens, batch,
                      tokens, keys, heads, kv_heads, head_dim, q_stride, k_stride, v_stride,
                      block_size, max_blocks, scale, causal},
                  stream);
}
extern "C" cudaError_t flash_mma_fp8_bf16(
    const __nv_bfloat16* q, const __nv_fp8_e4m3* k, const __nv_fp8_e4m3* v, __nv_bfloat16* out,
    float* lse, const int* starts_q, const int* starts_k, const int* block_tables,
    const int* context_lens, int batch, int tokens, int keys, int heads, int kv_heads, int head_dim,
    int64_t q_stride, int64_t k_stride, int64_t v_stride, int block_size, int max_blocks,
    float scale, int causal, cudaStream_t stream) {
    return launch(Flash<__nv_bfloat16, __nv_fp8_e4m3>{
                      q, k, v, out, lse, starts_q, starts_k, block_tables, context_lens, batch,
                      tokens, keys, heads, kv_heads, head_dim, q_stride, k_stride, v_stride,
                      block_size, max_blocks, scale, causal},
                  stream);
}
