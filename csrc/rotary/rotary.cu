// Rotary position embedding, half-split: rotates queries or keys by angles that grow with position.
//
// Computes  for each pair i < half of a head of token t, with c = cos[positions[t]][i] and
//           s = sin[positions[t]][i]:
//           out[i] = x[i] × c - x[half + i] × s,   out[half + i] = x[half + i] × c + x[i] × s
//           in float32, rounded once
// Shapes    x [tokens, heads, 2 × half], tokens and heads token_stride and head_stride elements
//           apart and each head contiguous, so x may be a slice of a larger tensor; positions int64
//           [tokens]; cos and sin float32 [max_positions, half]; out [tokens, heads, 2 × half],
//           contiguous. x and out float32, float16 or bfloat16
// Owns      each thread: WIDTH adjacent pairs, which are 16 bytes in each half of a head, or one
//           pair if an address is not a multiple of 16; each thread block: 256 times that, across
//           heads
// Moves     x in once and out once: 4 × tokens × heads × half × element size. The first head of a
//           token reads its rows of cos and sin from memory; its other heads hit a cache.
// Oracle    the formula in float64, in tests/test_kernels.py
// Idea      the two elements of a pair are half a head apart. A thread that owns both reads each
//           once.
#include "follow.cuh"
#include "rotary/rotate.cuh"

constexpr int THREADS = 256;

template <typename T, int WIDTH>
__global__ void rotary(const T* x, const int64_t* positions, const float* cos, const float* sin,
                       T* out, int tokens, int heads, int half, int token_stride,
                       int head_stride) {
    let_next_begin();
    wait_for_last();
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;  // pair, counted over all heads
    int head = first / half, pair = first % half;
    int token = head / heads;
    if (token >= tokens) return;

    const T* from = x + (size_t)token * token_stride + (head % heads) * head_stride + pair;
    T* to = out + (size_t)head * 2 * half + pair;
    const float* c = cos + positions[token] * half + pair;
    const float* s = sin + positions[token] * half + pair;
    rotate<WIDTH>(from, c, s, half, to);
}

template <typename T>
static cudaError_t launch(const T* x, const int64_t* positions, const float* cos, const float* sin,
                          T* out, int tokens, int heads, int half, int token_stride,
                          int head_stride, cudaStream_t stream) {
    constexpr int WIDTH = Vec<T>::SIZE;
    int pairs = tokens * heads * half;
    if (pairs == 0) return cudaSuccess;
    bool wide = (half | token_stride | head_stride) % WIDTH == 0 && aligned16(x, cos, sin, out);
    auto kernel = wide ? rotary<T, WIDTH> : rotary<T, 1>;
    int thread_blocks = ceil_div(pairs, THREADS * (wide ? WIDTH : 1));
    return launch_behind(kernel, thread_blocks, THREADS, 0, stream, x, positions, cos, sin, out,
                         tokens, heads, half, token_stride, head_stride);
}

extern "C" cudaError_t rotary_f32(const float* x, const int64_t* positions, const float* cos,
                                  const float* sin, float* out, int tokens, int heads, int half,
                                  int token_stride, int head_stride, cudaStream_t stream) {
    return launch(x, positions, cos, sin, out, tokens, heads, half, token_stride, head_stride,
                  stream);
}
extern "C" cudaError_t rotary_f16(const __half* x, const int64_t* positions, const float* cos,
                                  const float* sin, __half* out, int tokens, int heads, int half,
                                  int token_stride, int head_stride, cudaStream_t stream) {
    return launch(x, positions, cos, sin, out, tokens, heads, half, token_stride, head_stride,
                  stream);
}
extern "C" cudaError_t rotary_bf16(const __nv_bfloat16* x, const int64_t* positions,
                                   const float* cos, const float* sin, __nv_bfloat16* out,
                                   int tokens, int heads, int half, int token_stride,
                                   int head_stride, cudaStream_t stream) {
    return launch(x, positions, cos, sin, out, tokens, heads, half, token_stride, head_stride,
                  stream);
}
