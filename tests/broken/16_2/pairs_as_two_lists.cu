// The list of pairs is read as all sources, then all targets.
// EXPECT = "block"
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS = 256;  // of a thread block

// `size` counts the units of a block.
template <typename V>
__global__ void copy_blocks(V* const* pools, const int64_t* mapping, int num_pools, int num_pairs,
                            int64_t size) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < num_pools * size;
         i += step) {
        V* pool = pools[i / size];
        for (int pair = 0; pair < num_pairs; ++pair) {
            int64_t source = mapping[pair], target = mapping[num_pairs + pair];
            pool[target * size + i % size] = pool[source * size + i % size];
        }
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
