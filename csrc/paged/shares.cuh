// Equal shares of all contexts of a batch, which the warps find that work on them.
//
// The work lies in one line: token after token, KV head after KV head, tile after tile of keys. A
// KV head of a token is an item. Worker w of n has what lies from w / n of the line to (w + 1) / n,
// so an item may be cut into parts, and a share has at most two parts of items: its first, where
// it ends an item, and its last, where it begins one. All else in it is whole items.
#pragma once

#include "paged/paged.cuh"

// TILE is the number of keys of a tile.
template <typename T, int TILE>
struct Work {
    Paged<T> paged;
    int skip;         // tokens at the beginning of every context that are left out, whole blocks
    int workers;
    int4* places;     // [workers]: item, tile and number of tiles where a share begins, all tiles
    float* parts;     // [2 × workers, group, head_dim], a share's first part and its last
    float* part_lse;  // [2 × workers, group]

    __device__ Context context(int token) const {
        Context found = find_context(paged, token);
        return {found.table + skip / paged.block_size, max(found.length - skip, 0)};
    }
    // Nothing has a tile too: somebody has to say that there is nothing.
    __device__ int tiles(const Context& context) const {
        return max(ceil_div(context.length, TILE), 1);
    }
};

// Where the share of one of `workers` begins in a line of `total` tiles.
__device__ __forceinline__ int begin_of(int worker, int workers, int total) {
    return (int)((int64_t)total * worker / workers);
}

// A tile in the line of all.
struct Place {
    int token, kv_head, tile, tiles;
    Context context;

    template <typename Work>
    __device__ __forceinline__ void next(const Work& work) {
        if (++tile < tiles) return;
        tile = 0;
        if (++kv_head < work.paged.kv_heads) return;
        kv_head = 0;
        enter(work, token + 1);
    }
    template <typename Work>
    __device__ __forceinline__ void enter(const Work& work, int new_token) {
        token = new_token;
        context = work.context(token);
        tiles = work.tiles(context);
    }
};

// Find the share of a worker: its first place, and how many tiles it has; and how many there are in
// all. A warp looks together, first at all tokens in 32 parts, then at the part in which the share
// begins, and so on.
template <typename Work>
__device__ Place find_share(const Work& work, int worker, int& count, int& total) {
    int lane = threadIdx.x % WARP, kv_heads = work.paged.kv_heads;
    int first = 0, end = work.paged.tokens, position = -1;
    while (true) {
        int each = ceil_div(end - first, WARP), tiles = 0;
        for (int i = 0, token = first + lane * each; i < each && token < end; ++i, ++token)
            tiles += work.tiles(work.context(token)) * kv_heads;
        int upto = tiles;
        for (int step = 1; step < WARP; step *= 2) {
            int before = __shfl_up_sync(ALL_LANES, upto, step);
            if (lane >= step) upto += before;
        }
        if (position < 0) {
            total = __shfl_sync(ALL_LANES, upto, WARP - 1);
            int workers = min(work.workers, total);
            if (worker >= workers) return count = 0, Place{};
            position = begin_of(worker, workers, total);
            count = begin_of(worker + 1, workers, total) - position;
        }
        int owner = __ffs(__ballot_sync(ALL_LANES, position < upto)) - 1;
        position -= __shfl_sync(ALL_LANES, upto - tiles, owner);
        first += owner * each;
        end = min(end, first + each);
        if (each == 1) break;
    }
    Place found = {};
    found.enter(work, first);
    found.kv_head = position / found.tiles;
    found.tile = position % found.tiles;
    return found;
}
