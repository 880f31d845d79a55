// Flash attention: what the rungs share. Their arguments, and how a tile finds its sequence and a
// key its place.
//
// A rung exports, for the dtypes that it takes, with T float, __half or __nv_bfloat16:
//
//   extern "C" cudaError_t flash_<rung>_<f32|f16|bf16>(
//       const T* q, const T* k, const T* v, T* out, float* lse, const int* starts_q,
//       const int* starts_k, const int* block_tables, const int* context_lens, int batch,
//       int tokens, int keys, int heads, int kv_heads, int head_dim, int64_t q_stride,
//       int64_t k_stride, int64_t v_stride, int block_size, int max_blocks, float scale,
//       int causal, cudaStream_t stream)
//
//   q [tokens, heads, head_dim] at q_stride elements from token to token, heads and their elements
//   side by side: so q, k and v may be slices of one matrix. out [tokens, heads, head_dim] without
//   gaps, lse [tokens, heads] the natural logarithm of the sum of exponentials. Query head h reads
//   KV head h / (heads / kv_heads). A row that sees no key gets zeros, and -infinity in lse.
//   scale is positive. If causal, the queries are the last of their sequence's tokens, and see the
//   keys up to their own position (aligned bottom-right).
//
//   The sequences lie in one of three ways; pointers that are not named are null:
//   dense   one sequence: batch 1, k and v [keys, kv_heads, head_dim] at k_stride and v_stride
//   ragged  end to end: sequence i has the queries starts_q[i] to starts_q[i + 1], and the keys
//           starts_k[i] to starts_k[i + 1]; [batch + 1] each, from 0 to tokens and to keys; either
//           may be none
//   paged   queries by starts_q; k and v are pools [blocks, block_size, kv_heads, head_dim], with
//           k_stride and v_stride from slot to slot; key j of sequence i lies in block
//           block_tables[i][j / block_size], table rows of max_blocks, and there are
//           context_lens[i] keys. Nothing beyond them is read, of the tables or of the pools.
//
// The host never learns the lengths: the grid has room for every way to cut `tokens` into `batch`
// sequences, and each thread block finds its own.
#pragma once

#include "common.cuh"

template <typename T>
struct Flash {
    const T *q, *k, *v;
    T* out;
    float* lse;
    const int *starts_q, *starts_k, *block_tables, *context_lens;
    int batch, tokens, keys, heads, kv_heads, head_dim;
    int64_t q_stride, k_stride, v_stride;
    int block_size, max_blocks;
    float scale;
    int causal;

    __host__ __device__ int group() const { return heads / kv_heads; }
};

// Tiles of `height` rows that are enough for any lengths, if a sequence's tiles begin at its start.
// `rows` are those of a token: 1, or the query heads that share a KV head.
template <typename T>
int most_tiles(const Flash<T>& flash, int height, int rows = 1) {
    int64_t all = (int64_t)flash.tokens * rows;
    return (int)(all / height) + flash.batch;
}

// What a tile of rows works on.
struct Sequence {
    int first_query, num_queries;
    int first_key, num_keys;
    const int* table;  // its row of the block tables; null if the keys lie side by side
    int first_row;     // of the tile, in the sequence; if num_queries × rows or more, it is empty

    // Keys that query `query` sees, from 0 on.
    __device__ int seen_by(int query, bool causal) const {
        return causal ? max(0, num_keys - num_queries + query + 1) : num_keys;
    }
    // Where key `key` lies: how many strides behind k and behind v.
    __device__ int place(int key, int block_size) const {
        if (!table) return first_key + key;
        return table[key / block_size] * block_size + key % block_size;
    }
};

// The sequence of a tile, by binary search: sequence i's tiles begin at number
// starts_q[i] × rows / height + i, which leaves room for all of them.
template <typename T>
__device__ Sequence find_sequence(const Flash<T>& flash, int tile, int height, int rows = 1) {
    Sequence found = {0, flash.tokens, 0, flash.keys, nullptr, tile * height};
    if (!flash.starts_q) return found;
    auto first_tile = [&](int i) {
        return (int)((int64_t)flash.starts_q[i] * rows / height) + i;
    };
    int low = 0, high = flash.batch;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        (first_tile(middle) <= tile ? low : high) = middle;
    }
    found.first_query = flash.starts_q[low];
    found.num_queries = flash.starts_q[low + 1] - found.first_query;
    found.first_row = (tile - first_tile(low)) * height;
    if (flash.block_tables) {
        found.table = flash.block_tables + (size_t)low * flash.max_blocks;
        found.num_keys = flash.context_lens[low];
    } else {
        found.first_key = flash.starts_k[low];
        found.num_keys = flash.starts_k[low + 1] - found.first_key;
    }
    return found;
}
