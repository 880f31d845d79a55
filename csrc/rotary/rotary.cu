// Rotary position embedding, half-split: queries or keys are turned by their positions.
//
// Computes  for each pair i < half of a head of token t, with c = cos[positions[t]][i] and s alike:
//           out[i] = x[i] × c - x[half + i] × s,   out[half + i] = x[half + i] × c + x[i] × s
//           in float32, rounded once
// Shapes    x [tokens, heads, 2 × half]: its tokens and heads lie token_stride and head_stride
//           elements apart, a head is contiguous; so x may be a part of a larger tensor.
//           positions int64 [tokens]; cos and sin float32 [max_positions, half];
//           out [tokens, heads, 2 × half], contiguous. x and out float32, float16 or bfloat16
// Owns      a thread: WIDTH pairs side by side, in 16 bytes of either half of a head (one pair if
//           an address does not allow that); a thread block: 256 times that, across heads
// Moves     x in once, out once: 4 × tokens × heads × half × the size of an element. A row of the
//           tables comes from memory once a token and from the caches for its other heads.
// Oracle    the formula in float64, in tests/test_kernels.py
// Idea      the pair of an element is half a head away, so a thread that has both reads each once.
#include "common.cuh"

constexpr int THREADS = 256;

template <typename T, int WIDTH>
__global__ void rotary(const T* x, const int64_t* positions, const float* cos, const float* sin,
                       T* out, int tokens, int heads, int half, int token_stride,
                       int head_stride) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;  // of all pairs
    int head = first / half, pair = first % half;
    int token = head / heads;
    if (token >= tokens) return;

    const T* from = x + (size_t)token * token_stride + (head % heads) * head_stride + pair;
    T* to = out + (size_t)head * 2 * half + pair;
    const float* c = cos + positions[token] * half + pair;
    const float* s = sin + positions[token] * half + pair;
    if constexpr (WIDTH == 1) {
        float a = to_float(from[0]), b = to_float(from[half]);
        to[0] = from_float<T>(a * *c - b * *s);
        to[half] = from_float<T>(b * *c + a * *s);
    } else {
        Vec<T> low = load16(from), high = load16(from + half);
        for (int k = 0; k < WIDTH; k += 4) {
            Vec<float> cosines = load16(c + k), sines = load16(s + k);
            for (int j = 0; j < 4; ++j) {
                float a = to_float(low[k + j]), b = to_float(high[k + j]);
                low[k + j] = from_float<T>(a * cosines[j] - b * sines[j]);
                high[k + j] = from_float<T>(b * cosines[j] + a * sines[j]);
            }
        }
        store16(to, low);
        store16(to + half, high);
    }
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
    kernel<<<thread_blocks, THREADS, 0, stream>>>(x, positions, cos, sin, out, tokens, heads, half,
                                                  token_stride, head_stride);
    return cudaGetLastError();
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
