// Solution of exercise 20.3: The longest cached prefix, in arrays.
//
// A thread walks down the tree for one prompt, from node 0. Of `prompt`, `whole` tokens are looked
// up, a multiple of block_size. Find how many of them the tree holds, in whole blocks: that is
// lengths[p]. nodes[p] is the node in whose key the match ends, 0 if nothing is found. The values
// found go to `row`; its max_blocks elements are -1 after them.
//
// Generated from match_simple in csrc/radix/match_simple.cu.
// Edit it there, and run `python -m yaie.course build`.

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
// Moves     4 bytes per matched token, from the prompt and from the tree, and the tokens that are
//           read of edges that do not match
// Oracle    RadixTree.match, in tests/test_flat_tree.py
// Idea      node numbers replace pointers, and a range of consecutive numbers replaces a dictionary
//           of children.
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
    int node = 0, length = 0;
    for (int child = children[0]; length < whole && child < children[node + 1];) {
        const int* key = edges + starts[child];
        int size = min(starts[child + 1] - starts[child], whole - length), shared = 0;
        while (shared < size && key[shared] == prompt[length + shared]) ++shared;
        shared = shared / block_size * block_size;
        if (shared == 0) {
            ++child;  // try the next child
            continue;
        }
        for (int i = 0; i < shared; i += block_size)
            row[(length + i) / block_size] = values[(starts[child] + i) / block_size];
        node = child;
        length += shared;
        if (shared < starts[child + 1] - starts[child]) break;
        child = children[node];
    }
    for (int i = length / block_size; i < max_blocks; ++i) row[i] = -1;
    lengths[p] = length;
    nodes[p] = node;
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
