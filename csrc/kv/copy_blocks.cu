// Copies of blocks within the paged cache, rung 2: the engine's.
//
// Computes  block target = block source in every pool, for each pair, as if all sources were read
//           before any target is written. No target may stand twice.
// Shapes    as in copy_blocks_simple.cu, at most 4096 pairs
// Owns      blockIdx.x: a part of the block, blockIdx.y: a pair, blockIdx.z: every gridDim.z-th pool.
//           A thread: IN_FLIGHT units of that part, the same ones in every pair.
// Moves     2 × pools × pairs × block_bytes, and 16 bytes a pair; each thread block reads the pairs
// Oracle    indexing in PyTorch, equal in every bit (tests/test_kv_kernels.py)
// Idea      pairs go side by side, for in the engine's lists no block is both source and target: a
//           copy-on-write goes to a block that was just taken. Each thread block makes sure, and
//           nobody on the host has to look. Pairs that do meet are left to the thread blocks of the
//           first of them, which put them in order.
#include "kv/units.cuh"

constexpr int THREADS = 256;     // of a thread block
constexpr int IN_FLIGHT = 4;       // loads of a thread that are under way together
constexpr int MOST_PAIRS = 4096;
// A thread block takes a pool, and one more for each PAIRS_PER_POOL pairs: the list, which it reads
// once for all of them, is shorter than what it moves.
constexpr int PAIRS_PER_POOL = 512;
constexpr int DONE = -1;

// The blocks of all pools, and the part of them that a thread moves.
template <typename V>
struct Cache {
    V* const* pools;
    int num_pools;
    unsigned size;  // units of a block

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
        for (unsigned k = 0, i = cache.first(); k < IN_FLIGHT && i < cache.size; ++k, i += THREADS) {
            V kept = a[i];
            a[i] = b[i];
            b[i] = kept;
        }
    }
}

// Whether `other` reads what `pair` writes. A pair that copies a block onto itself does neither.
__device__ bool reads(const int64_t* mapping, int other, int pair) {
    return mapping[2 * other] == mapping[2 * pair + 1] && other != pair &&
           mapping[2 * other] != mapping[2 * other + 1];
}

// The pairs that meet others, in an order that is right. All threads of the thread block call it;
// each moves its own units, so the barriers are for the lists alone.
template <typename V>
__device__ void copy_chains(const Cache<V>& cache, const int64_t* mapping, int num_pairs,
                            int mine, int* readers, int* source) {
    __shared__ int ready, waiting;
    // How many pairs still have to read each pair's target.
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
        if (readers[pair] != DONE) return;  // those thread blocks do it

    while (true) {
        if (threadIdx.x == 0) ready = waiting = num_pairs;
        __syncthreads();
        for (int pair = threadIdx.x; pair < num_pairs; pair += THREADS) {
            if (readers[pair] == 0) atomicMin(&ready, pair);
            if (readers[pair] > 0) atomicMin(&waiting, pair);
        }
        __syncthreads();
        if (ready == num_pairs && waiting == num_pairs) return;
        // A target that nobody has to read any more may be written. If there is none, the pairs
        // that are left go in circles: exchange two blocks, and the circle is one shorter.
        bool circle = ready == num_pairs;
        int now = circle ? waiting : ready;
        int64_t from = source[now], to = mapping[2 * now + 1];
        if (circle) {
            exchange_blocks(cache, from, to);
        } else {
            copy_block(cache, from, to);
        }
        __syncthreads();
        for (int pair = threadIdx.x; pair < num_pairs; pair += THREADS) {
            if (pair == now) {
                readers[pair] = DONE;
            } else if (circle && readers[pair] > 0 && source[pair] == to) {
                source[pair] = (int)from;  // where the old content of `to` is now
                if (mapping[2 * pair + 1] == from) readers[pair] = DONE;
            } else if (!circle && readers[pair] > 0 && mapping[2 * pair + 1] == from) {
                --readers[pair];
            }
        }
        __syncthreads();
    }
}

template <typename V>
__global__ void copy_blocks(V* const* __restrict__ pools, const int64_t* __restrict__ mapping,
                            int num_pairs, int num_pools, unsigned size) {
    extern __shared__ int lists[];  // two numbers for each pair
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
