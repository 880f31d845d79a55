// Each thread block copies as many units of a block as it has threads, and no more.
// EXPECT = "Only the first 256 units of each block were copied"
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS = 256;  // of a thread block

// `size` counts the units of a block.
template <typename V>
__global__ void copy_blocks(V* const* pools, const int64_t* mapping, int num_pools, int num_pairs,
                            int64_t size) {
    int unit = threadIdx.x;
    if (unit >= size || blockIdx.x > 0) return;
    for (int p = 0; p < num_pools; ++p) {
        for (int pair = 0; pair < num_pairs; ++pair)
            pools[p][mapping[2 * pair + 1] * size + unit] = pools[p][mapping[2 * pair] * size + unit];
    }
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
