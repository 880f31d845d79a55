// Write new keys and values to their slots in the paged cache, rung 2 of 2: several rows per
// thread; the kernel that the engine uses.
//
// Computes  key_pool[slots[t]] = keys[t] and value_pool[slots[t]] = values[t]. A negative slot
//           marks a row of padding, which is not written.
// Shapes    as in reshape_and_cache_simple.cu; any dtype
// Owns      each thread: the same unit of TOKENS rows, of their keys and of their values. In a
//           thread block threadIdx.y is a row and threadIdx.x a unit of it, so short rows leave no
//           thread idle and no thread divides.
// Moves     keys and values in and out once: 4 × tokens × row_bytes, and 8 bytes per slot
// Oracle    index_copy_, equal in every bit (tests/test_kv_kernels.py)
// Idea      2 × TOKENS loads of 16 bytes are in flight before the first store waits for one, and
//           none of them waits for the slot, which is loaded at the same time.
#include "follow.cuh"
#include "kv/units.cuh"

constexpr int THREADS = 256;  // per thread block, at most
constexpr int TOKENS = 2;     // per thread

template <typename V>
__global__ void reshape_and_cache(const V* keys, const V* values,
                                  V* key_pool, V* value_pool, const int64_t* slots,
                                  int tokens, int size, int64_t key_stride, int64_t value_stride) {
    let_next_begin();
    wait_for_last();
    int64_t first = (int64_t)blockIdx.x * blockDim.y * TOKENS + threadIdx.y;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        V key[TOKENS], value[TOKENS];
        int64_t slot[TOKENS];
#pragma unroll
        for (int k = 0; k < TOKENS; ++k) {
            int64_t token = first + k * blockDim.y;
            slot[k] = -1;
            if (token >= tokens) continue;
            slot[k] = slots[token];
            key[k] = keys[token * key_stride + i];
            value[k] = values[token * value_stride + i];
        }
#pragma unroll
        for (int k = 0; k < TOKENS; ++k) {
            if (slot[k] < 0) continue;
            key_pool[slot[k] * size + i] = key[k];
            value_pool[slot[k] * size + i] = value[k];
        }
    }
}

extern "C" cudaError_t reshape_and_cache(const void* keys, const void* values, void* key_pool,
                                         void* value_pool, const int64_t* slots, int tokens,
                                         int row_bytes, int64_t key_stride, int64_t value_stride,
                                         cudaStream_t stream) {
    if (tokens == 0 || row_bytes == 0) return cudaSuccess;
    int unit = widest_unit(keys, values, key_pool, value_pool, row_bytes, key_stride, value_stride);
    int size = row_bytes / unit;
    dim3 threads(min(size, THREADS), max(THREADS / size, 1));
    int thread_blocks = ceil_div(tokens, (int)threads.y * TOKENS);
    cudaError_t error = cudaSuccess;
    with_unit(unit, [&](auto of) {
        using V = decltype(of);
        error = launch_behind(reshape_and_cache<V>, thread_blocks, threads, 0, stream,
                              static_cast<const V*>(keys), static_cast<const V*>(values),
                              static_cast<V*>(key_pool), static_cast<V*>(value_pool), slots,
                              tokens, size, key_stride / unit, value_stride / unit);
    });
    return error;
}
