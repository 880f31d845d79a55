// Exercise 17.2: Copy blocks in every layer, in one launch.
// Your part begins in line 38 of this file.
//
// For each pair of `mapping`, copy block `source` to block `target` in every pool: mapping[2 * pair]
// is the source, mapping[2 * pair + 1] the target. A block has `size` units of type `V`, and block b
// of a pool begins at unit b * size. The caller chooses how many thread blocks there are. The result
// has to be that of copying the pairs one after the other, as they are listed, even where a block is
// the target of one pair and the source of another.
//
// You have
// - `pools[p]`: pool p of `num_pools`, an address of units of type V; block b begins at unit `b *
//   size`
// - `mapping`: int64, `num_pairs` pairs of a source and a target
// - `size`: int64, units per block
// - `blockIdx.x`, `gridDim.x`, `blockDim.x`, `threadIdx.x`: which thread this is of how many
// - `int64_t`: an int of 64 bits: pools are large
//
// In a terminal: yaie check 17.2, yaie hint 17.2, yaie reset 17.2.

// Copy blocks within the paged cache, rung 1 of 2: a grid of any size, one pair after another.
//
// Computes  block target = block source in every pool, for each pair in the order of the list
// Shapes    pools: addresses of `num_pools` tensors [num_blocks, block_size, KV heads, head_dim],
//           the keys and the values of all layers; mapping int64 [pairs, 2], source and target; a
//           block has `block_bytes` bytes, of any dtype. `unit`, which is 1, 2, 4, 8 or 16 bytes,
//           must divide block_bytes and every address.
// Owns      each thread: one unit of the block, at one place in one pool, for every pair; then the
//           next place in a grid-stride loop
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS = 256;  // per thread block

// `size` counts the units of a block.
template <typename V>
__global__ void copy_blocks(V* const* pools, const int64_t* mapping, int num_pools, int num_pairs,
                            int64_t size) {
    // exercise 17.2 begin: copy every place of the block in every pool from source to target
    // your lines
    // exercise 17.2 end
}

template <typename V>
static void launch(void* const* pools, const int64_t* mapping, int num_pools, int num_pairs,
                   int64_t block_bytes, int thread_blocks, cudaStream_t stream) {
    copy_blocks<<<thread_blocks, THREADS, 0, stream>>>(reinterpret_cast<V* const*>(pools), mapping,
                                                       num_pools, num_pairs,
                                                       block_bytes / (int64_t)sizeof(V));
}

extern "C" cudaError_t copy_blocks_simple(void* const* pools, const int64_t* mapping, int num_pools,
                                          int num_pairs, int64_t block_bytes, int unit,
                                          int thread_blocks, cudaStream_t stream) {
    if (num_pools == 0 || num_pairs == 0 || block_bytes == 0) return cudaSuccess;
    auto run = launch<uint8_t>;
    if (unit == 2) run = launch<uint16_t>;
    if (unit == 4) run = launch<uint32_t>;
    if (unit == 8) run = launch<uint2>;
    if (unit == 16) run = launch<uint4>;
    run(pools, mapping, num_pools, num_pairs, block_bytes, thread_blocks, stream);
    return cudaGetLastError();
}
