// Exercise 17.1: New keys and values to their slots.
// Your parts begin in lines 42 and 68 of this file.
//
// A thread block has one token. Copy its row of keys to its slot of `key_pool` and its row of values
// to the same slot of `value_pool`, in units of type `V`: a row has `size` of them, tokens begin
// `key_stride` and `value_stride` units apart, and slot s begins at unit s * size. A negative slot
// is padding: write nothing. Then, in the launcher, say how many bytes a unit has: the widest of 1,
// 2, 4, 8 and 16 that every address, the row and both strides are multiples of.
//
// You have
// - `keys`, `values`: of type V; row `token` begins at `token * key_stride` and `token *
//   value_stride`
// - `key_pool`, `value_pool`: of type V; slot s begins at `s * size`
// - `slots`: int64, a slot for each token; negative for padding
// - `size`: units per row
// - `key_stride`, `value_stride`, `row_bytes`: in the launcher these three are bytes
// - `number(pointer)`: returns an address as an `int64_t`
// - `unit`: int, to be set: 1, 2, 4, 8 or 16 bytes
//
// In a terminal: yaie check 17.1, yaie hint 17.1, yaie reset 17.1.

// Write new keys and values to their slots in the paged cache, rung 1 of 2: one thread block per
// token.
//
// Computes  key_pool[slots[t]] = keys[t] and value_pool[slots[t]] = values[t]. A negative slot
//           marks a row of padding, which is not written.
// Shapes    keys and values [tokens, KV heads, head_dim], whose tokens lie `key_stride` and
//           `value_stride` bytes apart; pools [num_blocks, block_size, KV heads, head_dim]; slots
//           int64 [tokens], block × block_size + offset. A row holds all heads of a token and has
//           `row_bytes` bytes. Any dtype, since the kernel copies bytes.
// Owns      each thread block: a token; each thread: every THREADS-th unit of its row
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS = 128;  // per thread block

// `size` and the strides count units of type V.
template <typename V>
__global__ void reshape_and_cache(const V* keys, const V* values, V* key_pool, V* value_pool,
                                  const int64_t* slots, int size, int64_t key_stride,
                                  int64_t value_stride) {
    // exercise 17.1 begin: copy this thread's units of the token's row to the token's slot
    // your lines
    // exercise 17.1 end
}

// An address as a number.
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
    int unit = 1;  // bytes per load and store: 1, 2, 4, 8 or 16
    // exercise 17.1 begin: the widest unit that divides every address, the row and the strides
    // your lines
    // exercise 17.1 end
    auto run = launch<uint8_t>;
    if (unit == 2) run = launch<uint16_t>;
    if (unit == 4) run = launch<uint32_t>;
    if (unit == 8) run = launch<uint2>;
    if (unit == 16) run = launch<uint4>;
    run(keys, values, key_pool, value_pool, slots, tokens, row_bytes, key_stride, value_stride,
        stream);
    return cudaGetLastError();
}
