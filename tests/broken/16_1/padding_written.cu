// A row of padding goes to slot -1.
// EXPECT = "A slot of -1 marks a row of padding"
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS = 128;  // of a thread block

// `size` and the strides count units of type V.
template <typename V>
__global__ void reshape_and_cache(const V* keys, const V* values, V* key_pool, V* value_pool,
                                  const int64_t* slots, int size, int64_t key_stride,
                                  int64_t value_stride) {
    int64_t token = blockIdx.x, slot = slots[token];
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        key_pool[slot * size + i] = keys[token * key_stride + i];
        value_pool[slot * size + i] = values[token * value_stride + i];
    }
}

// The address as a number.
static int64_t number(const void* pointer) { return reinterpret_cast<int64_t>(pointer); }

template <typename V>
static void launch(const void* keys, const void* values, void* key_pool, void* value_pool,
                   const int64_t* slots, int tokens, int row_bytes, int64_t key_stride,
                   int64_t value_stride, cudaStream_t stream) {
    constexpr int bytes = sizeof(V);
    reshape_and_cache<<<tokens, THREADS, 0, stream>>>(
        static_cast<const V*>(keys), static_cast<const V*>(values), static_cast<V*>(key_pool),
        static_cast<V*>(value_pool), slots, row_bytes / bytes, key_stride / bytes,
        value_stride / bytes);
}

extern "C" cudaError_t reshape_and_cache_simple(const void* keys, const void* values,
                                                void* key_pool, void* value_pool,
                                                const int64_t* slots, int tokens, int row_bytes,
                                                int64_t key_stride, int64_t value_stride,
                                                cudaStream_t stream) {
    if (tokens == 0 || row_bytes == 0) return cudaSuccess;
    int unit = 1;  // bytes that a thread moves at once: 1, 2, 4, 8 or 16
    int64_t all = 16 | row_bytes | key_stride | value_stride;
    all |= number(keys) | number(values) | number(key_pool) | number(value_pool);
    unit = all & -all;  // the lowest bit that any of them has
    auto run = launch<uint8_t>;
    if (unit == 2) run = launch<uint16_t>;
    if (unit == 4) run = launch<uint32_t>;
    if (unit == 8) run = launch<uint2>;
    if (unit == 16) run = launch<uint4>;
    run(keys, values, key_pool, value_pool, slots, tokens, row_bytes, key_stride, value_stride,
        stream);
    return cudaGetLastError();
}
