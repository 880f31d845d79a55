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
// Moves     2 × tokens × KV heads × head_dim × (element size + 1), and 8 bytes per slot
// Oracle    the nearest of the 256 codes, found by a search in float64 (tests/test_kv_kernels.py)
// Idea      e4m3 covers 2⁻⁹ to 448 with three fraction bits per value (fewer below 2⁻⁶). The scale
//           brings the values to be stored into that range.
#include "common.cuh"
#include <cuda_fp8.h>

constexpr int THREADS = 128;  // per thread block

__device__ __nv_fp8_storage_t to_fp8(float x, float scale) {
    __nv_fp8_storage_t code = 0;
    // exercise 17.3 begin: scale, then convert; NaN stays NaN
    code = __nv_cvt_float_to_fp8(x / scale, __NV_SATFINITE, __NV_E4M3);
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
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        int which = per_head ? i / head_dim : 0;
        float key = to_float(keys[token * key_stride + i]);
        float value = to_float(values[token * value_stride + i]);
        key_pool[slot * size + i] = to_fp8(key, key_scale[which]);
        value_pool[slot * size + i] = to_fp8(value, value_scale[which]);
    }
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
