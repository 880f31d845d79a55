// Exercise 17.3: Store keys and values in 8 bits.
// Your parts begin in lines 40 and 55 of this file.
//
// `to_fp8(x, scale)` gives the code of the e4m3 number nearest to x / scale: of two equally near the
// even one, ±448 for all that is beyond, NaN for NaN. In the kernel, store this thread's elements of
// the token's row in both pools, each with its scale: keys and values have their own, one per head
// if `per_head` is 1, otherwise one for all.
//
// You have
// - `x`, `scale`, `code`: floats, and the 8 bits to be set
// - `__nv_cvt_float_to_fp8(value, saturation, __NV_E4M3)`: returns the nearest code, of two the even
//   one; NaN for NaN
// - `__NV_SATFINITE`, `__NV_NOSAT`: saturation: ±448 for all that is beyond; NaN for that
// - `keys`, `values`: of type T; row `token` begins at `token * key_stride` and `token *
//   value_stride`
// - `key_pool`, `value_pool`: codes; slot `slot` begins at `slot * size`
// - `key_scale`, `value_scale`: float, one per head if `per_head` is 1, otherwise one
// - `size`, `head_dim`: elements per row, and per head
// - `to_float(value)`: returns a T as a float
//
// In a terminal: yaie check 17.3, yaie hint 17.3, yaie reset 17.3.

// Write new keys and values to their slots in a cache of 8-bit floats (e4m3) with scales.
//
// Computes  key_pool[slots[t]] = the e4m3 nearest to keys[t] / scale; values likewise. A quotient
//           past ±448, the largest e4m3, becomes ±448; NaN stays NaN. A negative slot marks a row
//           of padding, which is not written.
// Shapes    keys and values [tokens, KV heads, head_dim], float32, float16 or bfloat16, whose
//           tokens lie `key_stride` and `value_stride` elements apart; pools [num_blocks,
//           block_size, KV heads, head_dim] e4m3; slots int64 [tokens]; scales float32, one per KV
//           head, or one for all heads if `per_head` is 0
// Owns      each thread block: a token; each thread: every THREADS-th element of its row
#include "common.cuh"
#include <cuda_fp8.h>

constexpr int THREADS = 128;  // per thread block

__device__ __nv_fp8_storage_t to_fp8(float x, float scale) {
    __nv_fp8_storage_t code = 0;
    // exercise 17.3 begin: scale, then convert; NaN stays NaN
    // your lines
    // exercise 17.3 end
    return code;
}

template <typename T>
__global__ void reshape_and_cache_fp8(const T* keys, const T* values, __nv_fp8_storage_t* key_pool,
                                      __nv_fp8_storage_t* value_pool, const int64_t* slots,
                                      const float* key_scale, const float* value_scale, int heads,
                                      int head_dim, int per_head, int64_t key_stride,
                                      int64_t value_stride) {
    int64_t token = blockIdx.x, slot = slots[token];
    int size = heads * head_dim;
    if (slot < 0) return;
    // exercise 17.3 begin: this thread's elements of the row, each with the scale of its head
    // your lines
    // exercise 17.3 end
}

template <typename T>
static cudaError_t launch(const T* keys, const T* values, __nv_fp8_e4m3* key_pool,
                          __nv_fp8_e4m3* value_pool, const int64_t* slots, const float* key_scale,
                          const float* value_scale, int tokens, int heads, int head_dim,
                          int per_head, int64_t key_stride, int64_t value_stride,
                          cudaStream_t stream) {
    if (tokens == 0 || heads == 0 || head_dim == 0) return cudaSuccess;
    reshape_and_cache_fp8<<<tokens, THREADS, 0, stream>>>(
        keys, values, reinterpret_cast<__nv_fp8_storage_t*>(key_pool),
        reinterpret_cast<__nv_fp8_storage_t*>(value_pool), slots, key_scale, value_scale, heads,
        head_dim, per_head, key_stride, value_stride);
    return cudaGetLastError();
}

extern "C" cudaError_t reshape_and_cache_fp8_f32(
    const float* keys, const float* values, __nv_fp8_e4m3* key_pool, __nv_fp8_e4m3* value_pool,
    const int64_t* slots, const float* key_scale, const float* value_scale, int tokens, int heads,
    int head_dim, int per_head, int64_t key_stride, int64_t value_stride, cudaStream_t stream) {
    return launch(keys, values, key_pool, value_pool, slots, key_scale, value_scale, tokens, heads,
                  head_dim, per_head, key_stride, value_stride, stream);
}
extern "C" cudaError_t reshape_and_cache_fp8_f16(
    const __half* keys, const __half* values, __nv_fp8_e4m3* key_pool, __nv_fp8_e4m3* value_pool,
    const int64_t* slots, const float* key_scale, const float* value_scale, int tokens, int heads,
    int head_dim, int per_head, int64_t key_stride, int64_t value_stride, cudaStream_t stream) {
    return launch(keys, values, key_pool, value_pool, slots, key_scale, value_scale, tokens, heads,
                  head_dim, per_head, key_stride, value_stride, stream);
}
extern "C" cudaError_t reshape_and_cache_fp8_bf16(
    const __nv_bfloat16* keys, const __nv_bfloat16* values, __nv_fp8_e4m3* key_pool,
    __nv_fp8_e4m3* value_pool, const int64_t* slots, const float* key_scale,
    const float* value_scale, int tokens, int heads, int head_dim, int per_head,
    int64_t key_stride, int64_t value_stride, cudaStream_t stream) {
    return launch(keys, values, key_pool, value_pool, slots, key_scale, value_scale, tokens, heads,
                  head_dim, per_head, key_stride, value_stride, stream);
}
