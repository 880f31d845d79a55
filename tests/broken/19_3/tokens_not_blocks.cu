// Does not round down to whole blocks.
// EXPECT = "round down to a multiple of block_size"
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
    int node = 0, length = 0;
    for (int child = children[0]; length < whole && child < children[node + 1];) {
        const int* key = edges + starts[child];
        int size = min(starts[child + 1] - starts[child], whole - length), shared = 0;
        while (shared < size && key[shared] == prompt[length + shared]) ++shared;
        if (shared == 0) {
            ++child;  // not this one
            continue;
        }
        for (int i = 0; i + block_size <= shared; i += block_size)
            row[(length + i) / block_size] = values[(starts[child] + i) / block_size];
        node = child;
        length += shared;
        if (shared < starts[child + 1] - starts[child]) break;
        child = children[node];
    }
    for (int i = length / block_size; i < max_blocks; ++i) row[i] = -1;
    lengths[p] = length;
    nodes[p] = node;
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
