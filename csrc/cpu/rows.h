// Operators on each row by itself: RMSNorm, SiLU and multiply, rotary positions.
//
// Computes  out = x / √(mean of x² + eps) × weight; gate / (1 + e^-gate) × up; a rotation of pairs
// Shapes    one row of `size` float32 numbers, or the heads of one token
// Owns      each call: one row
// Moves     the row in and out of a cache; a step has few rows
// Oracle    yaie.ops.reference in float64, in tests/test_cpp.py
// Idea      a row is in a cache already: its operators are as fast as they are short.
#pragma once
#include <cmath>

#include "lanes.h"

static inline void rms_norm_row(const float* x, const float* weight, int64_t size, float eps,
                                float* out) {
    Floats squares = {};
    float rest = 0.0f;
    int64_t whole = size / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) squares += load<Floats>(x + i) * load<Floats>(x + i);
    for (int64_t i = whole; i < size; ++i) rest += x[i] * x[i];
    float scale = 1.0f / sqrtf((sum(squares) + rest) / size + eps);
    for (int64_t i = 0; i < whole; i += LANES)
        store(out + i, load<Floats>(x + i) * scale * load<Floats>(weight + i));
    for (int64_t i = whole; i < size; ++i) out[i] = x[i] * scale * weight[i];
}

static inline void silu_and_mul_row(const float* gate, const float* up, int64_t size, float* out) {
    auto silu = [](Floats x) { return x / (exponential(-x) + 1.0f); };
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
        store(out + i, silu(load<Floats>(gate + i)) * load<Floats>(up + i));
    for (; i < size; ++i) out[i] = silu(splat(gate[i]))[0] * up[i];
}

// The heads of a token. Component i is paired with component i + head_dim / 2, and `cos` and `sin`
// are [positions, head_dim / 2].
static inline void rotate_heads(float* head, int64_t heads, int64_t head_dim, int64_t position,
                                const float* cos, const float* sin) {
    const int64_t half = head_dim / 2;
    cos += position * half, sin += position * half;
    for (const float* end = head + heads * head_dim; head < end; head += head_dim)
        for (int64_t i = 0; i < half; ++i) {
            float first = head[i], second = head[i + half];
            head[i] = first * cos[i] - second * sin[i];
            head[i + half] = second * cos[i] + first * sin[i];
        }
}
