// Exercise 18.2: A first draft of the tile loop: three faults.
// Your part begins in line 129 of this file.
//
// A thread block of 8 warps has a tile of queries. Each warp has ROWS of its rows, and each lane the
// score of one key for each of them. Between the marks stands a first draft of the loop over the
// tiles of keys. It compiles, its log-sum-exp is often right, and its output hardly ever. It has
// three faults. Find them, and change as little as you can.
//
// You have
// - `q_tile[i]`, `k_tile[i]`, `v_tile[i]`: shared memory: rows of queries, times scale, in float; of
//   32 keys and values
// - `load_tile(tile, from, stride, start, num_keys, sequence, flash)`: all threads bring keys
//   `start` on to a tile; zeros past num_keys
// - `multiply(scores, &q_tile[first], k_tile)`: sets `scores[r]` to the score of row `first` + r of
//   the tile and the key of this lane
// - `first`, `queries`: this warp's first row in the tile; how many rows the tile has
// - `seen[r]`, `num_keys`: how many keys row `first` + r sees, 0 if it does not exist; how many the
//   tile visits
// - `KEYS`, `WARP`: 32 each: keys in a tile, lanes in a warp
// - `flash.k_stride`, `flash.v_stride`, `k`, `v`: elements from one row to the next; where this KV
//   head's rows begin
// - `first_token`, `head`, `flash.heads`: the tile's first token, the query head, how many heads
//   there are; row (token, head) has the number token × heads + head
// - `warp_max(x)`, `warp_sum(x)`: return the maximum and the sum over the warp to all lanes
// - `__shfl_sync(ALL_LANES, x, lane)`: returns the `x` of a lane
// - `fmaxf(a, b)`, `expf(x)`, `logf(x)`, `to_float(x)`: the larger; natural exponential and
//   logarithm; a T as a float
// - `store_row(flash, row, sums, factor, lse)`: writes factor × sums to a row of out, and its log-
//   sum-exp; `sums` has PARTS elements, those of this lane
//
// In a terminal: yaie check 18.2, yaie hint 18.2, yaie reset 18.2.

// Flash attention, rung 2 of 3: a tile of queries, and tiles of keys and values in shared memory.
//
// Computes  softmax(q kᵀ · scale) v and the log-sum-exp of each row, as specified in flash.cuh
// Shapes    as specified in flash.cuh; float32, float16 or bfloat16; head_dim at most 128, else
//           cudaErrorInvalidValue
// Owns      each thread block of 8 warps: a tile of 32 queries of one head (16 in float32 with
//           head_dim above 64); each warp: 4 rows of it (2); each lane: the scores of one key of
//           each tile, and every 32nd element of each output row
#include "flash/flash.cuh"

constexpr int WARPS = 8, THREADS = WARPS * WARP;
constexpr int KEYS = WARP;  // per tile: one per lane

// The maximum of `value` over the warp, returned in every lane. All 32 lanes must call it.
__device__ __forceinline__ float warp_max(float value) {
    for (int step = WARP / 2; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, step));
    return value;
}

// Load a tile of k or v, one row per warp at a time, with zeros past the keys and past head_dim.
template <int WIDTH, typename T>
__device__ void load_tile(T (&tile)[KEYS][WIDTH], const T* from, int64_t stride, int start,
                          int num_keys, const Sequence& sequence, const Flash<T>& flash) {
    for (int row = threadIdx.x / WARP; row < KEYS; row += WARPS) {
        bool inside = start + row < num_keys;
        int64_t place = inside ? sequence.place(start + row, flash.block_size) : 0;
        for (int d = threadIdx.x % WARP; d < WIDTH; d += WARP)
            tile[row][d] =
                inside && d < flash.head_dim ? from[place * stride + d] : from_float<T>(0.0f);
    }
}

// The scores of this lane's key: the dot products of its row of k_tile with ROWS rows of q_tile.
template <int DIMS, int ROWS, int WIDTH, typename T>
__device__ void multiply(float (&scores)[ROWS], const float (*q_rows)[DIMS],
                         const T (&k_tile)[KEYS][WIDTH]) {
    for (int r = 0; r < ROWS; ++r) scores[r] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < DIMS; d += Vec<T>::SIZE) {
        Vec<T> k_values = load16(&k_tile[threadIdx.x % WARP][d]);
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int i = 0; i < Vec<T>::SIZE; i += Vec<float>::SIZE) {
                Vec<float> q_values = load16(&q_rows[r][d + i]);
#pragma unroll
                for (int j = 0; j < Vec<float>::SIZE; ++j)
                    scores[r] += q_values[j] * to_float(k_values[i + j]);
            }
    }
}

// Store a row of out, which is `sums` times `factor`, and its element of lse.
template <int PARTS, typename T>
__device__ void store_row(const Flash<T>& flash, size_t row, const float (&sums)[PARTS],
                          float factor, float lse) {
    int lane = threadIdx.x % WARP;
    for (int i = 0, d = lane; i < PARTS; ++i, d += WARP)
        if (d < flash.head_dim)
            flash.out[row * flash.head_dim + d] = from_float<T>(sums[i] * factor);
    if (lane == 0) flash.lse[row] = lse;
}

template <int DIMS, int ROWS, typename T>
__global__ void __launch_bounds__(THREADS) flash_shared_tile(Flash<T> flash) {
    constexpr int HEIGHT = WARPS * ROWS, PARTS = DIMS / WARP;
    // Rows of k_tile are padded by 16 bytes: a warp reads 32 of them together, in different banks.
    __shared__ alignas(16) float q_tile[HEIGHT][DIMS];
    __shared__ alignas(16) T k_tile[KEYS][DIMS + Vec<T>::SIZE];
    __shared__ alignas(16) T v_tile[KEYS][DIMS];

    Sequence sequence = find_sequence(flash, blockIdx.x, HEIGHT);
    if (sequence.first_row >= sequence.num_queries) return;  // the whole thread block returns
    int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * ROWS;  // this warp's first row
    int head = blockIdx.y, head_dim = flash.head_dim;

    // The KV head that this tile reads, its number of queries, the number of keys that its loop
    // covers, and how many keys each row of this warp sees: none for a row past the queries.
    int kv_head = head / flash.group(), seen[ROWS] = {};
    int queries = min(sequence.num_queries - sequence.first_row, HEIGHT);
    int num_keys = sequence.seen_by(sequence.first_row + queries - 1, flash.causal);
    for (int r = 0; r < ROWS; ++r)
        if (first + r < queries)
            seen[r] = sequence.seen_by(sequence.first_row + first + r, flash.causal);

    int first_token = sequence.first_query + sequence.first_row;
    const T* q = flash.q + first_token * flash.q_stride + head * head_dim;
    for (int row = threadIdx.x / WARP; row < HEIGHT; row += WARPS)
        for (int d = lane; d < DIMS; d += WARP)
            q_tile[row][d] = row < queries && d < head_dim
                                 ? to_float(q[row * flash.q_stride + d]) * flash.scale
                                 : 0.0f;
    const T* k = flash.k + kv_head * head_dim;
    const T* v = flash.v + kv_head * head_dim;

    // exercise 18.2 begin
    if (first >= queries) return;
    float maximum[ROWS], total[ROWS] = {}, sums[PARTS] = {}, scores[ROWS];
    for (int r = 0; r < ROWS; ++r) maximum[r] = -INFINITY;
    for (int start = 0; start < num_keys; start += KEYS) {
        load_tile(k_tile, k, flash.k_stride, start, num_keys, sequence, flash);
        load_tile(v_tile, v, flash.v_stride, start, num_keys, sequence, flash);
        __syncthreads();
        multiply(scores, &q_tile[first], k_tile);
        for (int r = 0; r < ROWS; ++r) {
            if (start + lane >= seen[r]) scores[r] = -INFINITY;
            float larger = fmaxf(maximum[r], warp_max(scores[r]));
            float finite = larger == -INFINITY ? 0.0f : larger;  // -inf - -inf is NaN
            scores[r] = expf(scores[r] - finite);                // from here on a weight
            float tile_total = warp_sum(scores[r]);
            total[r] = total[r] * expf(maximum[r] - finite) + tile_total;
            maximum[r] = larger;
            if (tile_total > 0.0f) scores[r] /= tile_total;
        }
        for (int key = 0; key < KEYS; ++key) {
            float value[PARTS];
            for (int i = 0; i < PARTS; ++i) value[i] = to_float(v_tile[key][lane + i * WARP]);
            for (int r = 0; r < ROWS; ++r) {
                float weight = __shfl_sync(ALL_LANES, scores[r], key);
                for (int i = 0; i < PARTS; ++i) sums[i] += weight * value[i];
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS && first + r < queries; ++r) {
        size_t row = (size_t)(first_token + first + r) * flash.heads + head;
        store_row(flash, row, sums, 1.0f, maximum[r] + logf(total[r]));
    }
    // exercise 18.2 end
}

template <int DIMS, typename T>
static cudaError_t launch_wide(const Flash<T>& flash, cudaStream_t stream) {
    constexpr int ROWS = DIMS * sizeof(T) > 256 ? 2 : 4;  // so that the tiles fit in 48 KB
    dim3 grid(most_tiles(flash, WARPS * ROWS), flash.heads);
    flash_shared_tile<DIMS, ROWS><<<grid, THREADS, 0, stream>>>(flash);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t launch(const Flash<T>& flash, cudaStream_t stream) {
    if (flash.tokens == 0 || flash.heads == 0) return cudaSuccess;
    if (flash.head_dim <= 32) return launch_wide<32>(flash, stream);
    if (flash.head_dim <= 64) return launch_wide<64>(flash, stream);
    if (flash.head_dim <= 128) return launch_wide<128>(flash, stream);
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t flash_shared_tile_f32(
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
extern "C" cudaError_t flash_shared_tile_f16(
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
extern "C" cudaError_t flash_shared_tile_bf16(
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
