// Paged attention: the arguments that the rungs share, and the keys of the cache that a query sees.
//
// In a decode step each sequence has one new token, whose query sees all keys of the sequence, its
// own included. With keys k_j and values v_j of KV head h / (heads / KV heads), head h of the query
// gets
//     out = sum of exp(s_j - lse) v_j,    s_j = scale × (q · k_j),    lse = log(sum of exp(s_j))
// in float32, rounded once. A query that sees no key gets zeros, and lse = -inf.
#pragma once

#include "common.cuh"

template <typename T, typename Cache = T>
struct Paged {
    const T* q;               // [tokens, heads, head_dim], tokens q_stride elements apart
    const Cache* key_pool;    // [num_blocks, block_size, KV heads, head_dim]
    const Cache* value_pool;  // the same
    const int* block_tables;  // [batch, max_blocks]; entries past a context are not read
    const int* context_lens;  // [batch]
    const int* cu_seqlens;    // [batch + 1], each sequence's first query; null: query i is of i
    T* out;                   // [tokens, heads, head_dim]
    float* lse;               // [tokens, heads]
    float scale;              // factor of the scores
    int tokens, batch, heads, kv_heads, head_dim, block_size, max_blocks;
    int64_t q_stride;

    // Query heads that share a KV head.
    __host__ __device__ int group() const { return heads / kv_heads; }
};

// What a query sees: the first `length` tokens of the blocks in its row of the block tables.
struct Context {
    const int* table;
    int length;
};

// The context of a query. The host does not know whether every sequence has one query: with
// cu_seqlens a sequence may have several or none, and each query sees the keys up to its own.
template <typename Paged>
__device__ Context find_context(const Paged& paged, int token) {
    int sequence = token, begin = token, end = token + 1, length = 0;
    const int* starts = paged.cu_seqlens;
    if (token < paged.batch) {  // load all three together, assuming one query per sequence
        length = paged.context_lens[token];
        if (starts) begin = starts[token], end = starts[token + 1];
    }
    if (starts && (token >= paged.batch || begin > token || end <= token)) {
        int low = 0, high = paged.batch;  // the last sequence that begins at or before the query
        while (low < high) {
            int middle = (low + high + 1) / 2;
            if (starts[middle] <= token) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        if (low == paged.batch) return {paged.block_tables, 0};  // past all sequences
        sequence = low;
        end = starts[low + 1];
        length = paged.context_lens[low];
    }
    return {paged.block_tables + (int64_t)sequence * paged.max_blocks,
            max(length - (end - 1 - token), 0)};
}

// The slot of a token, block × block_size + offset: its row of all KV heads in both pools.
__device__ __forceinline__ int64_t find_slot(const Context& context, int token, int block_size) {
    return (int64_t)context.table[token / block_size] * block_size + token % block_size;
}
