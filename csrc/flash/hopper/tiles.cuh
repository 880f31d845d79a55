// Shared by the rungs of flash attention on Hopper: tiles in shared memory as TMA leaves them and
// wgmma reads them, the online softmax of a warp group's scores in registers, and the tensor maps.
//
// A line of a tile is 64 elements, 128 bytes, which SPAN_128 swizzles. A tile of `rows` rows consists
// of DIM / 64 parts, one after another; a part has one line per row. Queries and keys are K-major:
// the sums of q kᵀ run along a line. Values are MN-major: the sums of weights v run down the rows.
//
// TMA needs some 60 clocks per box, however small it is. So rung 3 has it bring all parts of a block of a
// cache in one box, and blocks that follow one another too, if heads fill all parts. The tile is then
// TOGETHER: 8 lines of each part, part by part, for each 8 rows.
#pragma once

#include "flash/flash.cuh"
#include "hopper.cuh"

constexpr int LINE = 64;               // elements
constexpr int PATTERN = 8 * LINE * 2;  // bytes of 8 lines
constexpr int ROWS = 64;               // queries of a warp group
constexpr int HEADS_TOGETHER = 16;     // heads that consecutive tiles of queries alternate between
constexpr float LAZY = 8.0f;           // a weight may reach 2 to this power

// --------------------------------------------------------------------------------- products

// Bytes from one part of a tile of keys or values to the next, and from 8 lines to the next of a part.
template <int KEYS, bool TOGETHER>
constexpr int PART = TOGETHER ? PATTERN : KEYS * LINE * 2;
template <int DIM, bool TOGETHER>
constexpr int LINES_8 = TOGETHER ? DIM / LINE * PATTERN : PATTERN;

// scores = q kᵀ for the ROWS queries of a warp group and the KEYS keys of a tile.
template <typename T, int DIM, int KEYS, bool TOGETHER = false>
__device__ __forceinline__ void multiply_keys(float (&scores)[KEYS / 2], const T* q_tile,
                                              const T* k_tile) {
    uint64_t q = matrix_descriptor(q_tile, 0, PATTERN, Swizzle::SPAN_128);
    uint64_t k = matrix_descriptor(k_tile, 0, LINES_8<DIM, TOGETHER>, Swizzle::SPAN_128);
#pragma unroll
    for (int d = 0; d < DIM; d += 16) {
        int part = d / LINE, along = d % LINE * 2;
        wgmma<T, KEYS>(scores, advance(q, part * ROWS * LINE * 2 + along),
                       advance(k, part * PART<KEYS, TOGETHER> + along), d > 0);
    }
}

// out += weights v, where the weights are in registers as wgmma takes a: 16 keys in four of them.
template <typename T, int DIM, int KEYS, bool TOGETHER = false>
__device__ __forceinline__ void add_values(float (&out)[DIM / 2],
                                           const uint32_t (&weights)[KEYS / 16][4],
                                           const T* v_tile) {
    uint64_t v = matrix_descriptor(v_tile, PART<KEYS, TOGETHER>, LINES_8<DIM, TOGETHER>,
                                   Swizzle::SPAN_128);
#pragma unroll
    for (int step = 0; step < KEYS / 16; ++step)
        wgmma<T, DIM, true>(out, weights[step], advance(v, step * 2 * LINES_8<DIM, TOGETHER>));
}

// ---------------------------------------------------------------------------------- softmax

// Of the two rows whose scores a thread holds a quarter of: row lane / 4 of its warp, and 8 further
// down. Scores times scale are exponents of 2.
template <int KEYS>
struct Softmax {
    float scale, maximum[2] = {LOWEST, LOWEST}, total[2] = {};
    int seen[2];  // keys

    __device__ explicit Softmax(float scale_) : scale(scale_) {}

    // Hide the keys that a row does not see; `first` is the tile's first.
    __device__ __forceinline__ void mask(float (&scores)[KEYS / 2], int first) const {
        // exercise 26.1 begin: -INFINITY for each score of a key that its row does not see
        first += threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i)
            if (first + i / 4 * 8 + i % 2 >= seen[i / 2 % 2]) scores[i] = -INFINITY;
        // exercise 26.1 end
    }
    // Raise the maxima to those of the scores, if one of the warp has grown by more than LAZY, and
    // return whether it has: then what was summed so far is multiplied by `factors`.
    __device__ __forceinline__ bool raise(const float (&scores)[KEYS / 2], float (&factors)[2]) {
        float tops[2];
        bool higher = false;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float top = -INFINITY;
#pragma unroll
            for (int i = half * 2; i < KEYS / 2; i += 4)
                top = fmaxf(top, fmaxf(scores[i], scores[i + 1]));
            tops[half] = top * scale;
            higher |= tops[half] > maximum[half] + LAZY;
        }
        if (!__any_sync(ALL_LANES, higher)) return false;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float top = tops[half];  // of the four lanes that share the row
            top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
            top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
            top = fmaxf(top, maximum[half]);
            factors[half] = exp2_approx(maximum[half] - top);
            maximum[half] = top;
            total[half] *= factors[half];
        }
        return true;
    }
    // Scores become weights.
    __device__ __forceinline__ void weigh(float (&scores)[KEYS / 2]) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i) {
            float power = scores[i] * scale - maximum[i / 2 % 2];
            scores[i] = exp2_approx(power);
            total[i / 2 % 2] += scores[i];
        }
    }
};

template <int COUNT>
__device__ __forceinline__ void rescale(float (&out)[COUNT], const float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) out[i] *= factors[i / 2 % 2];
}

// Where wgmma leaves the scores of 16 keys is where it takes their weights.
template <typename T, int KEYS>
__device__ __forceinline__ void pack(uint32_t (&weights)[KEYS / 16][4],
                                     const float (&scores)[KEYS / 2]) {
    // exercise 26.1 begin: pairs of weights, where wgmma takes them as a
#pragma unroll
    for (int i = 0; i < KEYS / 4; ++i)
        weights[i / 4][i % 4] = pack2<T>(scores[i * 2], scores[i * 2 + 1]);
    // exercise 26.1 end
}

// ------------------------------------------------------------------------------------- tiles

// What a thread block does at a time: one head of a sequence's queries from first_row on.
struct Work {
    Sequence sequence;
    int head;  // -1: there is no more work
    int kv_head;
    int rows;      // queries: at most as many as the tile has; none if it is empty
    int tiles;     // of keys that at least one of them sees
    int last_box;  // the first key of the last box
};

// How many keys one copy brings: those of a tile, or those of a block of the cache.
template <typename T>
__host__ __device__ int box_height(const Flash<T>& flash, int keys_per_tile) {
    return flash.block_tables ? min(flash.block_size, keys_per_tile) : keys_per_tile;
}

// How many tiles every `step`-th sequence from `begin` to `end` - 1 fills, all together.
template <typename T>
__device__ int filled_tiles(const Flash<T>& flash, int height, int begin, int end, int step = 1) {
    int tiles = 0;
#pragma unroll 1  // the producer has few registers
    for (int i = begin; i < end; i += step)
        tiles += ceil_div(flash.starts_q[i + 1] - flash.starts_q[i], height);
    return tiles;
}

// How many tiles all sequences fill, without empty ones. A whole warp calls this and find_filled.
template <typename T>
__device__ int count_tiles(const Flash<T>& flash, int height) {
    if (!flash.starts_q) return ceil_div(flash.tokens, height);
    int lane = threadIdx.x % WARP;
    return __reduce_add_sync(ALL_LANES, filled_tiles(flash, height, lane, flash.batch, WARP));
}

// Find the sequence of one of these tiles. Each lane counts the tiles of its part of the sequences, and
// a prefix sum tells which part has the tile. The lanes divide this part in turn, down to one sequence.
template <typename T>
__device__ Sequence find_filled(const Flash<T>& flash, int tile, int height) {
    int lane = threadIdx.x % WARP, low = 0, high = flash.starts_q ? flash.batch : 0;
    while (high > low) {
        int each = ceil_div(high - low, WARP), begin = low + lane * each;
        int tiles = filled_tiles(flash, height, begin, min(begin + each, high)), upto = tiles;
#pragma unroll 1
        for (int step = 1; step < WARP; step *= 2) {
            int before = __shfl_up_sync(ALL_LANES, upto, step);
            if (lane >= step) upto += before;
        }
        int owner = __ffs(__ballot_sync(ALL_LANES, tile < upto)) - 1;
        tile -= __shfl_sync(ALL_LANES, upto - tiles, owner);
        low += owner * each;
        high = each == 1 ? low : min(low + each, high);
    }
    Sequence found = sequence_at(flash, low);
    found.first_row = tile * height;
    return found;
}

// Number `index` of them. All tiles of HEADS_TOGETHER heads come before the next heads: more would
// have more keys and values than the L2 cache holds. If causal, the tiles of a sequence from first to
// last see more and more keys. They come in this order for one sequence and in the other for the
// next, at the end in the other: so any thread block that takes every n-th gets about as many keys.
// There are `tiles_q` tiles per head. If FILLED, none of them is empty, and a whole warp calls this.
template <bool FILLED = false, typename T>
__device__ Work find_work(const Flash<T>& flash, int index, int height, int keys_per_tile,
                          int tiles_q) {
    int together = HEADS_TOGETHER * tiles_q;
    int group = index / together, within = index % together;
    int width = min(HEADS_TOGETHER, flash.heads - group * HEADS_TOGETHER);
    Work work;
    int tile = tiles_q - 1 - within / width;
    work.sequence = FILLED ? find_filled(flash, tile, height) : find_sequence(flash, tile, height);
    work.head = group * HEADS_TOGETHER + within % width;
    work.kv_head = work.head / flash.group();
    int queries = work.sequence.num_queries, &first = work.sequence.first_row;
    int groups_after = (flash.heads - 1) / HEADS_TOGETHER - group;
    if ((groups_after * flash.batch + work.sequence.number) % 2 && first < queries)
        first = (ceil_div(queries, height) - 1) * height - first;
    work.rows = min(height, queries - first);
    work.tiles =
        ceil_div(work.sequence.seen_by(first + work.rows - 1, flash.causal), keys_per_tile);
    int box = box_height(flash, keys_per_tile);
    work.last_box = (work.sequence.num_keys - 1) / box * box;
    return work;
}

// The same among most_tiles, which suffice for any lengths: some may be empty.
template <typename T>
__device__ Work find_work(const Flash<T>& flash, int index, int height, int keys_per_tile) {
    return find_work(flash, index, height, keys_per_tile, most_tiles(flash, height));
}

// Start loading the queries of all warp groups. One thread calls it.
template <typename T, int DIM, int GROUPS>
__device__ __forceinline__ void load_queries(T* to, const CUtensorMap& map, uint64_t* full,
                                             const Work& work) {
    mbarrier_arrive_expect(full, GROUPS * ROWS * DIM * 2);
    for (int i = 0; i < GROUPS * (DIM / LINE); ++i)
        tma_load(to + i * ROWS * LINE, map, full, i % (DIM / LINE) * LINE, work.head,
                 work.sequence.first_query + work.sequence.first_row + i / (DIM / LINE) * ROWS);
}

// The tensor maps of keys or values. `box` is what one copy brings: of a part, a tile or a block of the
// cache; if TOGETHER, all parts of a block. Then `tile` is a tile, of blocks that follow one another.
struct RowMaps {
    CUtensorMap box, tile;
};

// Start loading the keys from `first` on, or their values. A warp calls it: its lanes load the boxes.
// Blocks past the sequence's end are loaded from its last: no block need exist there, and the bytes to
// wait for are always the same.
template <typename T, int DIM, int KEYS, bool TOGETHER = false>
__device__ __forceinline__ void load_tile(T* to, const RowMaps& maps, uint64_t* full,
                                          const Flash<T>& flash, const Work& work, int first) {
    constexpr int PARTS = DIM / LINE;
    int lane = threadIdx.x % WARP, height = box_height(flash, KEYS);
    auto row_at = [&](int down) {
        return work.sequence.place(min(first + down, work.last_box), flash.block_size);
    };
    if (lane == 0) mbarrier_arrive_expect(full, KEYS * DIM * 2);
    __syncwarp();
    if constexpr (TOGETHER) {
        bool loads = lane * height < KEYS;
        int row = loads ? row_at(lane * height) : 0;
        int distance = row - __shfl_sync(ALL_LANES, row, 0);
        if (__all_sync(ALL_LANES, !loads || distance == lane * height)) {
            if (lane == 0) tma_load(to, maps.tile, full, 0, 0, 0, row / 8, work.kv_head);
        } else if (loads) {
            tma_load(to + lane * height * DIM, maps.box, full, 0, 0, 0, row / 8, work.kv_head);
        }
    } else {
        int part = lane % PARTS;
#pragma unroll 1  // the producer has few registers
        for (int down = lane / PARTS * height; down < KEYS; down += WARP / PARTS * height)
            tma_load(to + (part * KEYS + down) * LINE, maps.box, full, part * LINE, work.kv_head,
                     row_at(down));
    }
}

// Values past the end of a sequence are another's, or what was there before: NaN times weight 0 is
// NaN, so they become zeros. A whole warp or thread block calls it.
template <typename T, int DIM, int KEYS, bool TOGETHER = false>
__device__ __forceinline__ void zero_values(T* tile, int first_row, int thread, int threads) {
#pragma unroll 1
    for (int i = first_row * (LINE / 8) + thread; i < KEYS * (LINE / 8); i += threads)
#pragma unroll
        for (int part = 0; part < DIM / LINE; ++part)
            store16(tile + (part * PART<KEYS, TOGETHER> + i / 64 * LINES_8<DIM, TOGETHER>) / 2 +
                        i % 64 * 8,
                    Vec<T>{});
    fence_proxy_async();
}

// ------------------------------------------------------------------------------------ output

// Divide the sums of a warp group by their totals and store them, through the place of its queries,
// in 16 bytes per lane. Its threads meet at named barrier `barrier`. `row` is its first in the tile.
// Each thread calls given_back() after it has read that place and before it stores.
template <typename T, int DIM, int KEYS, typename GivenBack>
__device__ __forceinline__ void store_rows(const Flash<T>& flash, const Work& work, T* place,
                                           const float (&out)[DIM / 2], const Softmax<KEYS>& softmax,
                                           int row, int barrier, GivenBack given_back) {
    int thread = threadIdx.x % WARP_GROUP, lane = thread % WARP, first = thread / WARP * 16;
    int64_t begin = work.sequence.first_query + work.sequence.first_row + row;
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float sum = softmax.total[half];
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        factors[half] = sum == 0.0f ? 0.0f : 1.0f / sum;
        int mine = first + half * 8 + lane / 4;
        if (lane % 4 == 0 && row + mine < work.rows)
            flash.lse[(begin + mine) * flash.heads + work.head] =
                (softmax.maximum[half] + log2f(sum)) * LN_2;
    }
    named_barrier_sync(barrier, WARP_GROUP);  // all products have read the queries
    int line = first + lane % 16;             // whose address this lane passes to stmatrix
#pragma unroll
    for (int i = 0; i < DIM / 16; ++i) {  // 16 columns: two 16-byte chunks of a line
        const float* held = &out[i * 8];
        int chunk = (i * 2 + lane / 16) % 8;
        stmatrix_x4(place + i / 4 * ROWS * LINE + line * LINE + (chunk ^ line % 8) * 8,
                    pack2<T>(held[0] * factors[0], held[1] * factors[0]),
                    pack2<T>(held[2] * factors[1], held[3] * factors[1]),
                    pack2<T>(held[4] * factors[0], held[5] * factors[0]),
                    pack2<T>(held[6] * factors[1], held[7] * factors[1]));
    }
    __syncwarp();
    constexpr int CHUNKS = DIM / 8, STEP = WARP / CHUNKS;  // per row; rows per load
    int chunk = lane % CHUNKS, top = first + lane / CHUNKS;
    uint4 rows[16 / STEP];
#pragma unroll
    for (int i = 0; i < 16 / STEP; ++i) {
        int line = top + i * STEP;
        rows[i] = *reinterpret_cast<const uint4*>(place + chunk / 8 * ROWS * LINE + line * LINE +
                                                  (chunk % 8 ^ line % 8) * 8);
    }
    given_back();
    if (chunk * 8 >= flash.head_dim) return;
    T* to = flash.out + ((begin + top) * flash.heads + work.head) * flash.head_dim + chunk * 8;
#pragma unroll
    for (int i = 0; i < 16 / STEP; ++i, to += (int64_t)STEP * flash.heads * flash.head_dim)
        if (row + top + i * STEP < work.rows) __stcs(reinterpret_cast<uint4*>(to), rows[i]);
}

// ---------------------------------------------------------------------------------- launching

struct Maps {
    CUtensorMap q;
    RowMaps k, v;
};

// Tensor maps of [rows, heads, head_dim]: a box is one line of `height` rows of a head. Columns past
// head_dim are loaded as zeros.
template <typename T>
cudaError_t make_map(CUtensorMap* map, const T* data, int rows, int heads, int head_dim,
                     int64_t row_stride, int height) {
    size_t sizes[] = {(size_t)head_dim, (size_t)heads, (size_t)rows};
    size_t strides[] = {(size_t)head_dim, (size_t)row_stride};
    int box[] = {LINE, 1, height};
    return make_tensor_map(map, data, sizes, strides, box, Swizzle::SPAN_128);
}

// The maps of a cache whose parts come together. The box of `height` rows of a head is `height` / 8 times
// 8 lines of each part.
template <typename T>
cudaError_t map_blocks(RowMaps* maps, const Flash<T>& flash, const T* data, int64_t row_stride,
                       int height, int keys) {
    size_t dim = flash.head_dim, stride = row_stride;
    size_t sizes[] = {LINE, 8, dim / LINE, (size_t)flash.keys / 8, (size_t)flash.kv_heads};
    size_t strides[] = {stride, LINE, 8 * stride, dim};
    int box[] = {LINE, 8, (int)dim / LINE, height / 8, 1};
    cudaError_t error =
        make_tensor_map(&maps->box, data, sizes, strides, box, Swizzle::SPAN_128);
    if (error != cudaSuccess) return error;
    box[3] = keys / 8;
    return make_tensor_map(&maps->tile, data, sizes, strides, box, Swizzle::SPAN_128);
}

// For tiles of `keys` keys. The boxes of a cache are its blocks, or parts of them: their sizes must
// divide each other, and be whole patterns of the swizzle.
template <typename T>
cudaError_t make_maps(Maps* maps, const Flash<T>& flash, int keys, bool together = false) {
    int block_size = flash.block_tables ? flash.block_size : keys;
    if (block_size % 8 || (keys % block_size && block_size % keys)) return cudaErrorInvalidValue;
    int height = box_height(flash, keys), dim = flash.head_dim;
    cudaError_t error =
        make_map(&maps->q, flash.q, flash.tokens, flash.heads, dim, flash.q_stride, ROWS);
    if (error != cudaSuccess) return error;
    auto map_rows = [&](RowMaps* to, const T* data, int64_t stride) {
        if (flash.keys == 0)  // then no tile is loaded, but a map needs a tensor
            return make_map(&to->box, flash.q, 1, flash.kv_heads, dim, flash.q_stride, height);
        if (together) return map_blocks(to, flash, data, stride, height, keys);
        return make_map(&to->box, data, flash.keys, flash.kv_heads, dim, stride, height);
    };
    error = map_rows(&maps->k, flash.k, flash.k_stride);
    return error == cudaSuccess ? map_rows(&maps->v, flash.v, flash.v_stride) : error;
}

// Checks the arguments and calls launch(flash) with the scale of powers of 2.
template <typename T, typename Launch>
cudaError_t checked(Flash<T> flash, int most_dim, Launch launch) {
    if (flash.tokens == 0 || flash.heads == 0 || flash.batch == 0) return cudaSuccess;
    if (flash.head_dim > most_dim) return cudaErrorInvalidValue;
    if ((flash.head_dim | flash.q_stride | flash.k_stride | flash.v_stride) % 8 ||
        !aligned16(flash.q, flash.k, flash.v, flash.out))
        return cudaErrorMisalignedAddress;
    flash.scale *= LOG2_E;
    return launch(flash);
}
