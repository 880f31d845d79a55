// Exercise 20.3: The longest cached prefix, in arrays.
// Your part begins in line 47 of this file.
//
// A thread walks down the tree for one prompt, from node 0. Of `prompt`, `whole` tokens are looked
// up, a multiple of block_size. Find how many of them the tree holds, in whole blocks: that is
// lengths[p]. nodes[p] is the node in whose key the match ends, 0 if nothing is found. The values
// found go to `row`; its max_blocks elements are -1 after them.
//
// You have
// - `prompt`, `whole`: the prompt's tokens, and how many of them are looked up, a multiple of
//   block_size
// - `block_size`, `p`: ints: tokens per block; the number of this thread's prompt
// - `edges`, `starts`: the keys of all nodes, one after the other; key i is `edges[starts[i]]` to
//   `edges[starts[i + 1] - 1]`
// - `children`: node i's children are the nodes `children[i]` to `children[i + 1] - 1`; siblings
//   differ in their first block
// - `values`: block k of node i's key has `values[starts[i] / block_size + k]`
// - `row`, `max_blocks`: int32, `max_blocks` places: the values found, then -1
// - `lengths[p]`, `nodes[p]`: the other outputs
// - `min(a, b)`: the smaller of two ints
//
// In a terminal: yaie check 20.3, yaie hint 20.3, yaie reset 20.3.

// Longest cached prefix, rung 1 of 2: one thread per prompt walks down the tree.
//
// Computes  for each prompt, cut to whole blocks and to at most max_blocks of them: the number of
//           its tokens that the tree holds, the node where that prefix ends, and the values (KV
//           blocks) of the prefix
// Shapes    tokens, the prompts end to end, and cu_seqlens [prompts + 1], where each begins; edges,
//           starts, children, values: the tree, as described in
//           yaie/course/lessons/ops/reference/radix.py; lengths [prompts], nodes [prompts], table
//           [prompts, max_blocks]. All int32. Entries of a row of the table past its values are -1.
// Owns      each thread: a prompt
#include "common.cuh"

constexpr int THREADS = 64;

__global__ void match_simple(const int* tokens, const int* cu_seqlens, const int* edges,
                             const int* starts, const int* children, const int* values,
                             int* lengths, int* nodes, int* table, int prompts, int block_size,
                             int max_blocks) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= prompts) return;
    const int* prompt = tokens + cu_seqlens[p];
    int whole = min((cu_seqlens[p + 1] - cu_seqlens[p]) / block_size, max_blocks) * block_size;
    int* row = table + (size_t)p * max_blocks;
    // exercise 20.3 begin: walk from node 0; set lengths[p], nodes[p], row[0 … max_blocks - 1]
    // your lines
    // exercise 20.3 end
}

extern "C" cudaError_t match_simple_i32(const int* tokens, const int* cu_seqlens,
                                        const int* edges, const int* starts, const int* children,
                                        const int* values, int* lengths, int* nodes, int* table,
                                        int prompts, int block_size, int max_blocks,
                                        cudaStream_t stream) {
    if (prompts == 0) return cudaSuccess;
    match_simple<<<ceil_div(prompts, THREADS), THREADS, 0, stream>>>(
        tokens, cu_seqlens, edges, starts, children, values, lengths, nodes, table, prompts,
        block_size, max_blocks);
    return cudaGetLastError();
}
