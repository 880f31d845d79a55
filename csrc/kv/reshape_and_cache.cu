// New keys and values to their slots in the paged cache, rung 2: the engine's.
//
// Computes  key_pool[slots[t]] = keys[t] and value_pool[slots[t]] = values[t]. A negative slot is a
//           row of padding, of which nothing is written.
// Shapes    as in reshape_and_cache_simple.cu; of any dtype
// Owns      a thread: UNITS units of the keys and the same of the values, a thread block's width
//           apart. Units are counted through all rows, so that short rows leave no thread idle.
// Moves     keys and values in and out once: 4 × tokens × row_bytes, and 8 bytes a slot
// Oracle    index_copy_, equal in every bit (tests/test_kv_kernels.py)
// Idea      2 × UNITS loads of 16 bytes are under way before the first store waits for one, and none
//           of them waits for the slot, whose load goes beside them.
#include "kv/units.cuh"

constexpr int THREADS = 256;  // of a thread block
constexpr int UNITS = 2;      // of a thread, in each of keys and values

template <typename V>
__global__ void reshape_and_cache(const V* keys, const V* values, V* key_pool, V* value_pool,
                                  const int64_t* slots, unsigned total, unsigned size,
                                  int64_t key_stride, int64_t value_stride) {
    unsigned first = blockIdx.x * THREADS * UNITS + threadIdx.x;
    V key[UNITS], value[UNITS];
    int64_t slot[UNITS];
#pragma unroll
    for (int k = 0; k < UNITS; ++k) {
        unsigned i = first + k * THREADS, token = i / size;
        slot[k] = -1;
        if (i >= total) continue;
        slot[k] = slots[token];
        key[k] = keys[token * key_stride + i % size];
        value[k] = values[token * value_stride + i % size];
    }
#pragma unroll
    for (int k = 0; k < UNITS; ++k) {
        unsigned i = first + k * THREADS;
        if (slot[k] < 0) continue;
        key_pool[slot[k] * size + i % size] = key[k];
        value_pool[slot[k] * size + i % size] = value[k];
    }
}

// Refuses more than 2³¹ units, which is above 32 GiB of keys where rows are multiples of 16 bytes.
extern "C" cudaError_t reshape_and_cache(const void* keys, const void* values, void* key_pool,
                                         void* value_pool, const int64_t* slots, int tokens,
                                         int row_bytes, int64_t key_stride, int64_t value_stride,
                                         cudaStream_t stream) {
    if (tokens == 0 || row_bytes == 0) return cudaSuccess;
    int unit = widest_unit(keys, values, key_pool, value_pool, row_bytes, key_stride, value_stride);
    int64_t total = (int64_t)tokens * (row_bytes / unit);
    if (total > INT32_MAX) return cudaErrorInvalidValue;
    with_unit(unit, [&](auto of) {
        using V = decltype(of);
        int thread_blocks = ceil_div((int)total, THREADS * UNITS);
        reshape_and_cache<<<thread_blocks, THREADS, 0, stream>>>(
            static_cast<const V*>(keys), static_cast<const V*>(values), static_cast<V*>(key_pool),
            static_cast<V*>(value_pool), slots, (unsigned)total, (unsigned)(row_bytes / unit),
            key_stride / unit, value_stride / unit);
    });
    return cudaGetLastError();
}
