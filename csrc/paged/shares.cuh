// Equal shares of the contexts of a batch: each warp computes its own share.
//
// An item is a KV head of a token. All work forms one list of tiles: token by token, KV head by KV
// head, tile by tile of keys. Worker w of n owns the tiles from w / n to (w + 1) / n of the list,
// so an item may be cut into parts. A share contains at most two partial items: its first
// item, if the share begins in the middle of it, and its last, if the share ends in the middle. All
// others are whole. An empty context has no tiles, so it is in no share. As an item it would cost
// time although it reads nothing; all of a batch's padding would fall into the last share, and the
// other workers would wait for it.
#pragma once

#include "paged/paged.cuh"

// TILE is the number of keys per tile.
template <typename T, typename Cache, int TILE>
struct Work {
    Paged<T, Cache> paged;
    int skip;         // tokens to skip at the start of every context, whole blocks
    int workers;
    // [workers]: the item and tile where a share begins, its tiles, all tiles; or null: then each
    // share is one whole item
    int4* places;
    float* parts;     // [2 × workers, group, head_dim], a share's first and last part
    float* part_lse;  // [2 × workers, group]
    // Of a cache of 8-bit floats: float32 per KV head, or one for all heads if not per_head.
    const float* key_scale = nullptr;
    const float* value_scale = nullptr;
    int per_head = 0;

    // How many tokens belong to a sequence; those after them are not written here.
    __device__ int tokens() const {
        return paged.cu_seqlens ? paged.cu_seqlens[paged.batch] : paged.tokens;
    }
    __device__ Context context(int token) const {
        Context found = find_context(paged, token);
        return {found.table + skip / paged.block_size, max(found.length - skip, 0)};
    }
    __device__ int tiles(const Context& context) const {
        return ceil_div(context.length, TILE);
    }
};

// Where the share of a worker begins in a list of `total` tiles.
__device__ __forceinline__ int begin_of(int worker, int workers, int total) {
    return (int)((int64_t)total * worker / workers);
}

// A tile, and its place in the list of all tiles. Call next() only if another tile follows.
struct Place {
    int token, kv_head, tile, tiles;
    Context context;

    template <typename Work>
    __device__ __forceinline__ void next(const Work& work) {
        if (++tile < tiles) return;
        tile = 0;
        if (++kv_head < work.paged.kv_heads) return;
        kv_head = 0;
        do {
            enter(work, token + 1);
        } while (tiles == 0);
    }
    template <typename Work>
    __device__ __forceinline__ void enter(const Work& work, int new_token) {
        token = new_token;
        context = work.context(token);
        tiles = work.tiles(context);
    }
};

// Find the share of a worker: returns its first place; `count` becomes its number of tiles and
// `total` that of all shares. The lanes of a warp search together: each sums one of 32 parts of the
// tokens, then they divide the part in which the share begins, and so on.
template <typename Work>
__device__ Place find_share(const Work& work, int worker, int& count, int& total) {
    int lane = threadIdx.x % WARP, kv_heads = work.paged.kv_heads;
    if (work.places == nullptr) {
        Place item = {};
        item.enter(work, worker / kv_heads);
        item.kv_head = worker % kv_heads;
        return count = item.tiles, item;
    }
    int first = 0, end = work.tokens(), position = -1;
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
