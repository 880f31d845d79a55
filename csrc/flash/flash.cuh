// Flash attention: the arguments that the rungs share, and how a tile finds its sequence and a key
// its place in memory.
//
// A rung exports, for each dtype that it takes, with T float, __half or __nv_bfloat16:
//
//   extern "C" cudaError_t flash_<rung>_<f32|f16|bf16>(
//       const T* q, const T* k, const T* v, T* out, float* lse, const int* starts_q,
//       const int* starts_k, const int* block_tables, const int* context_lens, int batch,
//       int tokens, int keys, int heads, int kv_heads, int head_dim, int64_t q_stride,
//       int64_t k_stride, int64_t v_stride, int block_size, int max_blocks, float scale,
//       int causal, cudaStream_t stream)
//
//   q [tokens, heads, head_dim] with q_stride elements from one token to the next; the heads of a
//   token and their elements are contiguous, so q, k and v may be slices of one matrix. out
//   [tokens, heads, head_dim] is contiguous; lse [tokens, heads] receives the natural logarithm of
//   the sum of exponentials. Query head h reads KV head h / (heads / kv_heads). A row that sees no
//   key gets zeros, and -infinity in lse. scale is positive. If causal, the queries are the last
//   tokens of their sequence, and each sees the keys up to its own position (aligned bottom-right).
//
//   The sequences are stored in one of three ways; pointers that are not named are null:
//   dense   one sequence: batch 1, k and v [keys, kv_heads, head_dim] with k_stride and v_stride
//   ragged  end to end: sequence i has queries starts_q[i] to starts_q[i + 1] and keys starts_k[i]
//           to starts_k[i + 1]; both arrays are [batch + 1], from 0 to tokens and to keys; a
//           sequence may have no queries or no keys
//   paged   queries by starts_q; if starts_q[0] > 0, another kernel computes the tokens before it, and
//           their rows of out and lse are not written; k and v are pools
//           [blocks, block_size, kv_heads, head_dim], with k_stride and v_stride from slot to slot;
//           key j of sequence i lies in block
//           block_tables[i][j / block_size]; a row of the tables has max_blocks entries; sequence
//           i has context_lens[i] keys, and nothing past them is read, of tables or pools
//
//   A rung may have launchers flash_<rung>_fp8_<f16|bf16> as well: their pools are 8-bit floats (e4m3).
//
// The host does not know the lengths: the grid has room for every way to divide `tokens` among
// `batch` sequences, and each thread block finds its own sequence.
#pragma once

#include "common.cuh"

template <typename T, typename Cache = T>
struct Flash {
    const T* q;
    const Cache *k, *v;
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

// The number of tiles of `height` rows that suffices for any lengths, where each sequence begins a
// new tile. `rows` is the number of rows per token: 1, or the query heads that share a KV head.
template <typename T, typename Cache>
__host__ __device__ int most_tiles(const Flash<T, Cache>& flash, int height, int rows = 1) {
    int64_t all = (int64_t)flash.tokens * rows;
    return (int)(all / height) + flash.batch;
}

// The sequence that a tile of rows belongs to.
struct Sequence {
    int first_query, num_queries;
    int first_key, num_keys;
    const int* table;  // its row of the block tables; null if the keys are contiguous
    int first_row;     // where the tile begins; an empty tile if num_queries × rows or more
    int number;        // of the sequence

    // How many keys query `query` sees, counted from key 0.
    __device__ int seen_by(int query, bool causal) const {
        return causal ? max(0, num_keys - num_queries + query + 1) : num_keys;
    }
    // Where key `key` lies, as a multiple of the strides from k and v.
    __device__ int place(int key, int block_size) const {
        if (!table) return first_key + key;
        return table[key / block_size] * block_size + key % block_size;
    }
};

// Sequence `number`, with a tile at its first row.
template <typename T, typename Cache>
__device__ Sequence sequence_at(const Flash<T, Cache>& flash, int number) {
    Sequence found = {0, flash.tokens, 0, flash.keys, nullptr, 0, number};
    if (!flash.starts_q) return found;
    found.first_query = flash.starts_q[number];
    found.num_queries = flash.starts_q[number + 1] - found.first_query;
    if (flash.block_tables) {
        found.table = flash.block_tables + (size_t)number * flash.max_blocks;
        found.num_keys = flash.context_lens[number];
    } else {
        found.first_key = flash.starts_k[number];
        found.num_keys = flash.starts_k[number + 1] - found.first_key;
    }
    return found;
}

// Find the sequence of a tile by binary search. The tiles of sequence i begin at tile
// (starts_q[i] - starts_q[0]) × rows / height + i, which leaves room for all of them.
template <typename T, typename Cache>
__device__ Sequence find_sequence(const Flash<T, Cache>& flash, int tile, int height, int rows = 1) {
    int low = 0, first = 0;
    if (flash.starts_q) {
        int begin = flash.starts_q[0], high = flash.batch;
        auto first_tile = [&](int i) {
            return (int)((int64_t)(flash.starts_q[i] - begin) * rows / height) + i;
        };
        while (high - low > 1) {
            int middle = (low + high) / 2;
            (first_tile(middle) <= tile ? low : high) = middle;
        }
        first = first_tile(low);
    }
    Sequence found = sequence_at(flash, low);
    found.first_row = (tile - first) * height;
    return found;
}
