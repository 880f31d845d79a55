// Gather the keys and values of several sequences from a cache of 8-bit floats (e4m3) with scales.
//
// Computes  keys[starts[b] + t] = key_pool[slot of token t of sequence b] × scale, rounded once;
//           values likewise
// Shapes    as in gather_kv.cu; pools e4m3; keys and values float32, float16 or bfloat16; scales
//           float32, one per KV head, or one for all heads if `per_head` is 0
// Owns      each thread block: a block of a sequence; each thread: every THREADS-th element of it
// Moves     2 × tokens × KV heads × head_dim × (1 + element size), and 4 bytes per block
// Oracle    the code's value in float64, times the scale (tests/test_kv_kernels.py)
// Idea      the cache holds codes and the scales are stored apart, so every reader must multiply by
//           the scale. Here that happens once, on the way out of the cache.
#include "common.cuh"
#include <cuda_fp8.h>

constexpr int THREADS = 256;  // per thread block

template <typename T>
__global__ void gather_kv_fp8(const __nv_fp8_e4m3* key_pool, const __nv_fp8_e4m3* value_pool,
                              const int* tables, const int* starts, const float* key_scale,
                              const float* value_scale, T* keys, T* values, int max_blocks,
                              int block_size, int heads, int head_dim, int per_head) {
    int sequence = blockIdx.x / max_blocks, number = blockIdx.x % max_blocks;
    int64_t first = starts[sequence] + (int64_t)number * block_size;  // its first token
    int tokens = (int)min((int64_t)block_size, starts[sequence + 1] - first);
    if (tokens <= 0) return;
    int size = heads * head_dim;
    int64_t from = (int64_t)tables[blockIdx.x] * block_size * size, to = first * size;
    for (int i = threadIdx.x; i < tokens * size; i += THREADS) {
        int which = per_head ? i / head_dim % heads : 0;
        keys[to + i] = from_float<T>(float(key_pool[from + i]) * key_scale[which]);
        values[to + i] = from_float<T>(float(value_pool[from + i]) * value_scale[which]);
    }
}

template <typename T>
static cudaError_t launch(const __nv_fp8_e4m3* key_pool, const __nv_fp8_e4m3* value_pool,
                          const int* tables, const int* starts, const float* key_scale,
                          const float* value_scale, T* keys, T* values, int batch, int max_blocks,
                          int block_size, int heads, int head_dim, int per_head,
                          cudaStream_t stream) {
    if (batch == 0 || max_blocks == 0 || block_size == 0 || heads == 0 || head_dim == 0)
        return cudaSuccess;
    int64_t thread_blocks = (int64_t)batch * max_blocks;
    if (thread_blocks > INT32_MAX) return cudaErrorInvalidValue;
    gather_kv_fp8<<<(int)thread_blocks, THREADS, 0, stream>>>(
        key_pool, value_pool, tables, starts, key_scale, value_scale, keys, values, max_blocks,
        block_size, heads, head_dim, per_head);
    return cudaGetLastError();
}

extern "C" cudaError_t gather_kv_fp8_f32(
    const __nv_fp8_e4m3* key_pool, const __nv_fp8_e4m3* value_pool, const int* tables,
    const int* starts, const float* key_scale, const float* value_scale, float* keys,
    float* values, int batch, int max_blocks, int block_size, int heads, int head_dim,
    int per_head, cudaStream_t stream) {
    return launch(key_pool, value_pool, tables, starts, key_scale, value_scale, keys, values, batch,
                  max_blocks, block_size, heads, head_dim, per_head, stream);
}
extern "C" cudaError_t gather_kv_fp8_f16(
    const __nv_fp8_e4m3* key_pool, const __nv_fp8_e4m3* value_pool, const int* tables,
    const int* starts, const float* key_scale, const float* value_scale, __half* keys,
    __half* values, int batch, int max_blocks, int block_size, int heads, int head_dim,
    int per_head, cudaStream_t stream) {
    return launch(key_pool, value_pool, tables, starts, key_scale, value_scale, keys, values, batch,
                  max_blocks, block_size, heads, head_dim, per_head, stream);
}
extern "C" cudaError_t gather_kv_fp8_bf16(
    const __nv_fp8_e4m3* key_pool, const __nv_fp8_e4m3* value_pool, const int* tables,
    const int* starts, const float* key_scale, const float* value_scale, __nv_bfloat16* keys,
    __nv_bfloat16* values, int batch, int max_blocks, int block_size, int heads, int head_dim,
    int per_head, cudaStream_t stream) {
    return launch(key_pool, value_pool, tables, starts, key_scale, value_scale, keys, values, batch,
                  max_blocks, block_size, heads, head_dim, per_head, stream);
}
