// Gather the keys and values of several sequences from the paged cache into contiguous memory.
//
// Computes  keys[starts[b] + t] = key_pool[slot of token t of sequence b]; values likewise
// Shapes    pools [num_blocks, block_size, KV heads, head_dim]; tables int32 [batch, max_blocks]
//           and starts int32 [batch + 1], both contiguous; keys and values [starts[batch], KV
//           heads, head_dim]. A row holds all heads of a token and has `row_bytes` bytes, of any
//           dtype.
// Owns      each thread block: a block of a sequence, which is contiguous on both sides; each
//           thread: every THREADS-th unit of it, in the keys and in the values
// Moves     the sequences in and out once: 4 × tokens × row_bytes, and 4 bytes per block
// Oracle    indexing by slots, equal in every bit (tests/test_kv_kernels.py)
// Idea      an entry of the block table is read once per block, not once per token. A thread block
//           past the end of its sequence returns immediately, so the host need not know the
//           lengths.
#include "kv/units.cuh"

constexpr int THREADS = 256;  // per thread block

template <typename V>
__global__ void gather_kv(const V* __restrict__ key_pool, const V* __restrict__ value_pool,
                          const int* tables, const int* starts, V* __restrict__ keys,
                          V* __restrict__ values, int max_blocks, int block_size, int size) {
    int sequence = blockIdx.x / max_blocks, number = blockIdx.x % max_blocks;
    int64_t first = starts[sequence] + (int64_t)number * block_size;  // its first token
    int tokens = (int)min((int64_t)block_size, starts[sequence + 1] - first);
    if (tokens <= 0) return;
    int64_t from = (int64_t)tables[blockIdx.x] * block_size * size, to = first * size;
#pragma unroll 4
    for (int i = threadIdx.x; i < tokens * size; i += THREADS) {
        keys[to + i] = key_pool[from + i];
        values[to + i] = value_pool[from + i];
    }
}

extern "C" cudaError_t gather_kv(const void* key_pool, const void* value_pool, const int* tables,
                                 const int* starts, void* keys, void* values, int batch,
                                 int max_blocks, int block_size, int row_bytes,
                                 cudaStream_t stream) {
    if (batch == 0 || max_blocks == 0 || block_size == 0 || row_bytes == 0) return cudaSuccess;
    int64_t thread_blocks = (int64_t)batch * max_blocks;
    if (thread_blocks > INT32_MAX || (int64_t)block_size * row_bytes > INT32_MAX)
        return cudaErrorInvalidValue;
    int unit = widest_unit(key_pool, value_pool, keys, values, row_bytes);
    with_unit(unit, [&](auto of) {
        using V = decltype(of);
        gather_kv<<<(int)thread_blocks, THREADS, 0, stream>>>(
            static_cast<const V*>(key_pool), static_cast<const V*>(value_pool), tables, starts,
            static_cast<V*>(keys), static_cast<V*>(values), max_blocks, block_size,
            row_bytes / unit);
    });
    return cudaGetLastError();
}
