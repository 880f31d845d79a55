// Matrix products with weights as they are stored: rows of a format of lanes.h.
//
// Computes  out[t][n] = Σ over k of x[t][k] × weights[n][k], in float32
// Shapes    x [tokens, size] float32; weights [rows, size] in any format, size a multiple of its
//           GROUP; out [tokens, rows] float32
// Owns      each call: a panel of up to PANEL rows, for up to TOKENS tokens
// Moves     the weights once: they are what a product of a few tokens costs
// Oracle    float64, in tests/test_cpp.py
// Idea      a lane sums every LANES-th term, in order, whatever the tile; so a row of the result
//           has the same bits with any number of tokens beside it. With more than two tokens,
//           a panel is unpacked to float32 once, at an address at which no load crosses a cache line.
#pragma once
#include <algorithm>

#include "lanes.h"

constexpr int PANEL = 32, TOKENS = 128;
constexpr int MOST = REGISTERS == 32 ? 6 : 2;  // tokens in a tile: all sums stay in registers

// M tokens by rows of weights, `stride` bytes apart, four at a time.
template <class F, int M>
static void strip(const uint8_t* weights, size_t stride, int64_t rows, const float* x,
                  size_t x_stride, int64_t size, float* out, size_t out_stride) {
    for (int64_t r = 0; r < rows; r += 4) {
        auto row = [&](int64_t i) { return weights + std::min(r + i, rows - 1) * stride; };
        const uint8_t *a = row(0), *b = row(1), *c = row(2), *d = row(3);
        Floats sum_a[M] = {}, sum_b[M] = {}, sum_c[M] = {}, sum_d[M] = {};
        for (int64_t k = 0; k < size; k += F::GROUP) {
            for (int v = 0; v < F::GROUP / LANES; ++v) {
                Floats in_a = F::unpack(a, v), in_b = F::unpack(b, v);
                Floats in_c = F::unpack(c, v), in_d = F::unpack(d, v);
                for (int m = 0; m < M; ++m) {
                    Floats value = load<Floats>(x + m * x_stride + k + v * LANES);
                    sum_a[m] += in_a * value;
                    sum_b[m] += in_b * value;
                    sum_c[m] += in_c * value;
                    sum_d[m] += in_d * value;
                }
            }
            a += F::BYTES, b += F::BYTES, c += F::BYTES, d += F::BYTES;
        }
        for (int m = 0; m < M; ++m) {
            Quad four = sums(sum_a[m], sum_b[m], sum_c[m], sum_d[m]);
            memcpy(out + m * out_stride + r, &four, std::min<int64_t>(4, rows - r) * 4);
        }
    }
}

template <class F, int M, class... Arguments>
static void strip_of(int64_t m, Arguments... arguments) {
    if (m == M) strip<F, M>(arguments...);
    else if constexpr (M > 1) strip_of<F, M - 1>(m, arguments...);
}

// All tokens by `rows` rows of weights; `scratch` holds rows × size floats, aligned as Floats.
template <class F>
static void multiply(const uint8_t* weights, size_t stride, int64_t rows, const float* x,
                     size_t x_stride, int64_t tokens, int64_t size, float* out, size_t out_stride,
                     float* scratch) {
    bool aligned = F::KIND == F32::KIND && ((uintptr_t)weights | stride) % sizeof(Floats) == 0;
    if (tokens > 2 && !aligned) {
        for (int64_t r = 0; r < rows; ++r)
            widen<F>(weights + r * stride, size, scratch + r * size);
        multiply<F32>((const uint8_t*)scratch, size * 4, rows, x, x_stride, tokens, size, out,
                      out_stride, scratch);
        return;
    }
    constexpr int LARGEST = F::KIND == F32::KIND ? MOST : 2;
    for (int64_t t = 0, m; t < tokens; t += m) {
        int64_t left = tokens - t, strips = (left + LARGEST - 1) / LARGEST;
        m = (left + strips - 1) / strips;  // 8 tokens are 4 and 4, not 6 and 2
        strip_of<F, LARGEST>(m, weights, stride, rows, x + t * x_stride, x_stride, size,
                             out + t * out_stride, out_stride);
    }
}

struct Part {  // of a matrix: `rows` rows of one format
    const uint8_t* data;
    int64_t rows, kind;
};

static inline size_t row_bytes(int64_t kind, int64_t size) {
    size_t bytes = 0;
    with_format(kind, [&](auto f) { bytes = size / decltype(f)::GROUP * decltype(f)::BYTES; });
    return bytes;
}

static inline int64_t panels(int64_t rows) { return (rows + PANEL - 1) / PANEL; }

// Panel `panel` of a part for up to TOKENS tokens, into out [tokens, PANEL]; returns its rows.
static inline int64_t multiply_panel(const Part& part, int64_t panel, const float* x,
                                     size_t x_stride, int64_t tokens, int64_t size, float* out,
                                     float* scratch) {
    int64_t first = panel * PANEL, rows = std::min<int64_t>(PANEL, part.rows - first);
    size_t stride = row_bytes(part.kind, size);
    with_format(part.kind, [&](auto f) {
        multiply<decltype(f)>(part.data + first * stride, stride, rows, x, x_stride, tokens, size,
                              out, PANEL, scratch);
    });
    return rows;
}
