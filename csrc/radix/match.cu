// Longest cached prefix, rung 2 of 2: one warp per prompt walks down the tree; the kernel that the
// engine uses.
//
// Computes  for each prompt, cut to whole blocks and to at most max_blocks of them: the number of
//           its tokens that the tree holds, the node where that prefix ends, and the values (KV
//           blocks) of the prefix
// Shapes    tokens, the prompts end to end, and cu_seqlens [prompts + 1], where each begins; edges,
//           starts, children, values: the tree, as described in
//           yaie/course/lessons/ops/reference/radix.py; lengths [prompts], nodes [prompts], table
//           [prompts, max_blocks]. All int32. Entries of a row of the table past its values are -1.
// Owns      each warp: a prompt; each lane: every 32nd token of an edge
// Moves     4 bytes per matched token, from the prompt and from the tree; for each node on the path
//           one block each of log2(number of children) keys
// Oracle    RadixTree.match, in tests/test_flat_tree.py
// Idea      32 lanes compare 32 adjacent tokens of an edge with two coalesced loads, and one vote
//           tells all of them where the first difference is. Children are sorted by their keys, so
//           bisection finds the right one.
#include "common.cuh"

constexpr int WARPS = 4;  // per thread block

// How many of n tokens agree before the first difference. All 32 lanes must call it.
static __device__ int shared_tokens(const int* a, const int* b, int n) {
    for (int first = 0; first < n; first += WARP) {
        int i = first + threadIdx.x;
        unsigned differ = __ballot_sync(ALL_LANES, i < n && a[i] != b[i]);
        if (differ) return first + __ffs(differ) - 1;
    }
    return n;
}

__global__ void match(const int* tokens, const int* cu_seqlens, const int* edges,
                      const int* starts, const int* children, const int* values, int* lengths,
                      int* nodes, int* table, int prompts, int block_size, int max_blocks) {
    int p = blockIdx.x * WARPS + threadIdx.y, lane = threadIdx.x;
    if (p >= prompts) return;  // a whole warp returns
    const int* prompt = tokens + cu_seqlens[p];
    int whole = min((cu_seqlens[p + 1] - cu_seqlens[p]) / block_size, max_blocks) * block_size;
    int* row = table + (size_t)p * max_blocks;
    int node = 0, length = 0;
    bool went_on = true;
    while (went_on && length < whole) {
        went_on = false;
        int low = children[node], high = children[node + 1];
        while (low < high) {  // the child that begins with the next block is in low … high - 1
            int middle = (low + high) / 2;
            const int *key = edges + starts[middle], *next = prompt + length;
            int shared = shared_tokens(key, next, block_size);
            if (shared < block_size) {
                if (key[shared] < next[shared]) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
                continue;
            }
            int size = starts[middle + 1] - starts[middle];
            shared = shared_tokens(key, next, min(size, whole - length));
            shared = shared / block_size * block_size;
            const int* from = values + starts[middle] / block_size;
            for (int i = lane; i < shared / block_size; i += WARP)
                row[length / block_size + i] = from[i];
            node = middle;
            length += shared;
            went_on = shared == size;
            break;
        }
    }
    for (int i = length / block_size + lane; i < max_blocks; i += WARP) row[i] = -1;
    if (lane == 0) {
        lengths[p] = length;
        nodes[p] = node;
    }
}

extern "C" cudaError_t match_i32(const int* tokens, const int* cu_seqlens, const int* edges,
                                 const int* starts, const int* children, const int* values,
                                 int* lengths, int* nodes, int* table, int prompts, int block_size,
                                 int max_blocks, cudaStream_t stream) {
    if (prompts == 0) return cudaSuccess;
    match<<<ceil_div(prompts, WARPS), dim3(WARP, WARPS), 0, stream>>>(
        tokens, cu_seqlens, edges, starts, children, values, lengths, nodes, table, prompts,
        block_size, max_blocks);
    return cudaGetLastError();
}
