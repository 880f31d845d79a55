// Copy blocks within the paged cache, rung 2 of 2: all pairs in parallel.
//
// Computes  block target = block source in every pool, for each pair, as if all sources were read
//           before any target is written. No block may be the target of two pairs.
// Shapes    as in copy_blocks_simple.cu, at most 4096 pairs
// Owns      blockIdx.x: a part of the block; blockIdx.y: a pair; blockIdx.z: every gridDim.z-th
//           pool. Each thread: IN_FLIGHT units of that part, the same ones in every pair.
// Moves     2 × pools × pairs × block_bytes, and 16 bytes per pair; each thread block reads all
//           pairs
// Oracle    indexing in PyTorch, equal in every bit (tests/test_kv_kernels.py)
// Idea      in a cache's lists no block is both a source and a target, since copy-on-write
//           copies to a block that was just allocated, so all pairs can be copied in parallel. Each
//           thread block checks this for its pair, and the host does not have to. Pairs that do
//           share a block are left to the thread blocks of the first such pair, which copy them in
//           a valid order.
#include "kv/units.cuh"

constexpr int THREADS = 256;     // per thread block
constexpr int IN_FLIGHT = 4;       // loads per thread in flight together
constexpr int MOST_PAIRS = 4096;
// A thread block copies one pool, and one more for every PAIRS_PER_POOL pairs. It reads the list of
// pairs once for all its pools, so the list stays shorter than what the thread block copies.
constexpr int PAIRS_PER_POOL = 512;
constexpr int DONE = -1;

// The pools, and the part of a block that a thread copies.
template <typename V>
struct Cache {
    V* const* pools;
    int num_pools;
    unsigned size;  // units per block

    static __device__ unsigned first() { return blockIdx.x * THREADS * IN_FLIGHT + threadIdx.x; }
};

template <typename V>
__device__ void copy_block(const Cache<V>& cache, int64_t source, int64_t target) {
    unsigned first = cache.first();
    for (int p = blockIdx.z; p < cache.num_pools; p += gridDim.z) {
        V* pool = cache.pools[p];
        const V* from = pool + source * cache.size + first;
        V* to = pool + target * cache.size + first;
        V kept[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; ++k)
            if (first + k * THREADS < cache.size) kept[k] = from[k * THREADS];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; ++k)
            if (first + k * THREADS < cache.size) to[k * THREADS] = kept[k];
    }
}

template <typename V>
__device__ void exchange_blocks(const Cache<V>& cache, int64_t one, int64_t other) {
    for (int p = blockIdx.z; p < cache.num_pools; p += gridDim.z) {
        V* a = cache.pools[p] + one * cache.size;
        V* b = cache.pools[p] + other * cache.size;
        unsigned i = cache.first();
        for (int k = 0; k < IN_FLIGHT && i < cache.size; ++k, i += THREADS) {
            V kept = a[i];
            a[i] = b[i];
            b[i] = kept;
        }
    }
}

// Whether `other` reads the block that `pair` writes. A pair that copies a block to itself does not
// count.
__device__ bool reads(const int64_t* mapping, int other, int pair) {
    return mapping[2 * other] == mapping[2 * pair + 1] && other != pair &&
           mapping[2 * other] != mapping[2 * other + 1];
}

// Copy the pairs that share a block with another pair, in a valid order. All threads of the thread
// block call it. Each copies its own units of every pair, so only the lists need barriers.
template <typename V>
__device__ void copy_chains(const Cache<V>& cache, const int64_t* mapping, int num_pairs,
                            int mine, int* readers, int* source) {
    __shared__ int ready, waiting;
    // readers[pair]: how many pairs have yet to read the target of `pair`.
    for (int pair = threadIdx.x; pair < num_pairs; pair += THREADS) {
        bool meets = false;
        int count = 0;
        for (int other = 0; other < num_pairs; ++other) {
            count += reads(mapping, other, pair);
            meets |= reads(mapping, pair, other);
        }
        source[pair] = (int)mapping[2 * pair];
        readers[pair] = count || meets ? count : DONE;
        if (mapping[2 * pair] == mapping[2 * pair + 1]) readers[pair] = DONE;
    }
    __syncthreads();
    for (int pair = 0; pair < mine; ++pair)
        if (readers[pair] != DONE) return;  // the thread blocks of that pair copy them all

    while (true) {
        if (threadIdx.x == 0) ready = waiting = num_pairs;
        __syncthreads();
        for (int pair = threadIdx.x; pair < num_pairs; pair += THREADS) {
            if (readers[pair] == 0) atomicMin(&ready, pair);
            if (readers[pair] > 0) atomicMin(&waiting, pair);
        }
        __syncthreads();
        if (ready == num_pairs && waiting == num_pairs) return;
        // A target without readers may be written. If there is none, the remaining pairs form
        // cycles: exchanging two blocks makes a cycle one pair shorter.
        bool cycle = ready == num_pairs;
        int now = cycle ? waiting : ready;
        int64_t from = source[now], to = mapping[2 * now + 1];
        if (cycle) {
            exchange_blocks(cache, from, to);
        } else {
            copy_block(cache, from, to);
        }
        __syncthreads();
        for (int pair = threadIdx.x; pair < num_pairs; pair += THREADS) {
            if (pair == now) {
                readers[pair] = DONE;
            } else if (cycle && readers[pair] > 0 && source[pair] == to) {
                source[pair] = (int)from;  // the old content of `to` is there now
                if (mapping[2 * pair + 1] == from) readers[pair] = DONE;
            } else if (!cycle && readers[pair] > 0 && mapping[2 * pair + 1] == from) {
                --readers[pair];
            }
        }
        __syncthreads();
    }
}

template <typename V>
__global__ void copy_blocks(V* const* __restrict__ pools, const int64_t* __restrict__ mapping,
                            int num_pairs, int num_pools, unsigned size) {
    extern __shared__ int lists[];  // two values per pair
    const Cache<V> cache{pools, num_pools, size};
    int mine = blockIdx.y;
    int64_t source = mapping[2 * mine], target = mapping[2 * mine + 1];
    if (source == target) return;
    bool meets = false;
    for (int other = threadIdx.x; other < num_pairs; other += THREADS)
        meets |= reads(mapping, other, mine) || reads(mapping, mine, other);
    if (__syncthreads_or(meets)) {
        copy_chains(cache, mapping, num_pairs, mine, lists, lists + num_pairs);
    } else {
        copy_block(cache, source, target);
    }
}

extern "C" cudaError_t copy_blocks(void* const* pools, const int64_t* mapping, int num_pools,
                                   int num_pairs, int64_t block_bytes, int unit,
                                   cudaStream_t stream) {
    if (num_pools == 0 || num_pairs == 0 || block_bytes == 0) return cudaSuccess;
    int64_t size = block_bytes / unit;
    if (num_pairs > MOST_PAIRS || size > INT32_MAX) return cudaErrorInvalidValue;
    int parts = ceil_div((int)size, THREADS * IN_FLIGHT);
    int groups = ceil_div(num_pools, ceil_div(num_pairs, PAIRS_PER_POOL));
    dim3 grid(parts, num_pairs, min(groups, 65535));
    with_unit(unit, [&](auto of) {
        using V = decltype(of);
        copy_blocks<<<grid, THREADS, 2 * num_pairs * sizeof(int), stream>>>(
            reinterpret_cast<V* const*>(pools), mapping, num_pairs, num_pools, (unsigned)size);
    });
    return cudaGetLastError();
}
