// Rotate new queries and keys, and write keys and values to their slots in the paged cache: as
// rotary.cu and kv/reshape_and_cache.cu one after the other, but rotated keys are not stored in
// between. The engine uses it where the cache has the dtype of the model.
//
// Computes  q[t] = the first `heads` heads of x[t], rotated as in rotary.cu by positions[t];
//           key_pool[slots[t]] = the next kv_heads heads, rotated;
//           value_pool[slots[t]] = the last kv_heads heads. A negative slot marks a row of padding,
//           whose keys and values are not written.
// Shapes    x [tokens, heads + 2 × kv_heads, 2 × half], of fewer than 2^31 elements, positions and
//           slots int64 [tokens]; cos and sin float32 [max_positions, half]; q [tokens, heads,
//           2 × half]; pools [all slots, kv_heads, 2 × half]; all contiguous; x, q and pools
//           float32, float16 or bfloat16. The kernel that runs before it must not write positions
//           or slots
// Owns      each thread: WIDTH adjacent pairs, as in rotary.cu; each thread block: 256 times that,
//           across heads
// Moves     x in and out once: 4 × tokens × (heads + 2 × kv_heads) × half × element size
// Oracle    rotary.cu and reshape_and_cache.cu, equal in every bit (tests/test_kv_kernels.py)
// Idea      two short kernels in a row cost two waits. This one reads positions and slots, which
//           give the addresses of all else, before it waits.
#include <climits>

#include "follow.cuh"
#include "rotary/rotate.cuh"

constexpr int THREADS = 256;

template <typename T, int WIDTH>
__global__ void rotary_and_cache(const T* x, const int64_t* positions, const float* cos,
                                 const float* sin, T* q, T* key_pool, T* value_pool,
                                 const int64_t* slots, int tokens, int heads, int kv_heads,
                                 int half) {
    let_next_begin();
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;  // pair, counted over all heads
    int all = heads + 2 * kv_heads, pair = first % half, token = first / half / all;
    int head = first / half % all;
    bool inside = token < tokens;
    int64_t position = inside ? positions[token] : 0, slot = inside ? slots[token] : -1;
    wait_for_last();
    if (!inside || (head >= heads && slot < 0)) return;

    const T* from = x + (size_t)first * 2 - pair;  // a head has two elements per pair
    if (head < heads + kv_heads) {
        T* to = head < heads ? q + ((size_t)token * heads + head) * 2 * half
                             : key_pool + (slot * kv_heads + head - heads) * 2 * half;
        rotate<WIDTH>(from, cos + position * half + pair, sin + position * half + pair, half,
                      to + pair);
    } else {
        T* to = value_pool + (slot * kv_heads + head - heads - kv_heads) * 2 * half + pair;
        for (int part = 0; part < 2 * half; part += half) {
            if constexpr (WIDTH == 1) {
                to[part] = from[part];
            } else {
                store16(to + part, load16(from + part));
            }
        }
    }
}

template <typename T>
static cudaError_t launch(const T* x, const int64_t* positions, const float* cos, const float* sin,
                          T* q, T* key_pool, T* value_pool, const int64_t* slots, int tokens,
                          int heads, int kv_heads, int half, cudaStream_t stream) {
    constexpr int WIDTH = Vec<T>::SIZE;
    int64_t pairs = (int64_t)tokens * (heads + 2 * kv_heads) * half;
    if (pairs == 0) return cudaSuccess;
    if (pairs > INT_MAX / 2) return cudaErrorInvalidValue;
    bool wide = half % WIDTH == 0 && aligned16(x, cos, sin, q, key_pool, value_pool);
    auto kernel = wide ? rotary_and_cache<T, WIDTH> : rotary_and_cache<T, 1>;
    int thread_blocks = ceil_div((int)pairs, THREADS * (wide ? WIDTH : 1));
    return launch_behind(kernel, thread_blocks, THREADS, 0, stream, x, positions, cos, sin, q,
                         key_pool, value_pool, slots, tokens, heads, kv_heads, half);
}

extern "C" cudaError_t rotary_and_cache_f32(const float* x, const int64_t* positions,
                                            const float* cos, const float* sin, float* q,
                                            float* key_pool, float* value_pool,
                                            const int64_t* slots, int tokens, int heads,
                                            int kv_heads, int half, cudaStream_t stream) {
    return launch(x, positions, cos, sin, q, key_pool, value_pool, slots, tokens, heads, kv_heads,
                  half, stream);
}
extern "C" cudaError_t rotary_and_cache_f16(const __half* x, const int64_t* positions,
                                            const float* cos, const float* sin, __half* q,
                                            __half* key_pool, __half* value_pool,
                                            const int64_t* slots, int tokens, int heads,
                                            int kv_heads, int half, cudaStream_t stream) {
    return launch(x, positions, cos, sin, q, key_pool, value_pool, slots, tokens, heads, kv_heads,
                  half, stream);
}
extern "C" cudaError_t rotary_and_cache_bf16(const __nv_bfloat16* x, const int64_t* positions,
                                             const float* cos, const float* sin, __nv_bfloat16* q,
                                             __nv_bfloat16* key_pool, __nv_bfloat16* value_pool,
                                             const int64_t* slots, int tokens, int heads,
                                             int kv_heads, int half, cudaStream_t stream) {
    return launch(x, positions, cos, sin, q, key_pool, value_pool, slots, tokens, heads, kv_heads,
                  half, stream);
}
