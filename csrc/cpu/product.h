// Matrix products with weights as they are stored: rows of a format of lanes.h.
//
// Computes  out[t][n] = Σ over k of x[t][k] × weights[n][k], in float32
// Shapes    x [tokens, size] float32; weights [rows, size] in any format, size a multiple of its
//           GROUP; out [tokens, rows] float32
// Owns      each call: a panel of up to PANEL rows, for up to TOKENS tokens
// Moves     the weights once: they are what a product of a few tokens costs
// Oracle    float64, in tests/test_cpp.py
// Idea      a lane sums every LANES-th term, in order, whatever the tile; so a row of the result
//           has the same bits with any number of tokens beside it. For more than two tiles a panel
//           is unpacked to float32 once. Four rows are four streams of reads in one page, which no
//           processor foresees: each iteration asks for the bytes that come AHEAD.
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "lanes.h"

constexpr int PANEL = 32, TOKENS = 128;
constexpr int MOST = REGISTERS == 32 ? 6 : 2;  // tokens in a tile: all sums stay in registers
constexpr int AHEAD = 8192;  // bytes: what a core reads while the first of them are on their way

// Memory in which one thread keeps intermediate results.
struct Room {
    std::vector<float> memory;
    // `count` floats, aligned as Floats.
    float* floats(int64_t count) {
        if ((int64_t)memory.size() < count + LANES) memory.resize(count + LANES);
        uintptr_t at = (uintptr_t)memory.data(), size = sizeof(Floats);
        return (float*)((at + size - 1) / size * size);
    }
};

// M tokens by rows of weights, `stride` bytes apart, four at a time; `far` weights are in memory yet.
template <class F, int M>
static void strip(const uint8_t* weights, size_t stride, int64_t rows, const float* x,
                  size_t x_stride, int64_t size, float* out, size_t out_stride, bool far) {
    for (int64_t r = 0; r < rows; r += 4) {
        const uint8_t *row[4], *next = weights + r * stride + AHEAD;
        for (int i = 0; i < 4; ++i) row[i] = weights + std::min(r + i, rows - 1) * stride;
        Floats sum[4][M] = {};
        for (int64_t k = 0; k < size; k += F::GROUP, next += 4 * F::BYTES) {
            for (int i = 0; far && i < 4 * F::BYTES; i += 64) __builtin_prefetch(next + i, 0, 2);
            for (int v = 0; v < F::GROUP / LANES; ++v) {
                Floats in[4];
                for (int i = 0; i < 4; ++i) in[i] = F::unpack(row[i], v);
                for (int m = 0; m < M; ++m) {
                    Floats value = kept(load<Floats>(x + m * x_stride + k + v * LANES));
                    for (int i = 0; i < 4; ++i) sum[i][m] += in[i] * value;
                }
            }
            for (int i = 0; i < 4; ++i) row[i] += F::BYTES;
        }
        for (int m = 0; m < M; ++m) {
            Quad four = sums(sum[0][m], sum[1][m], sum[2][m], sum[3][m]);
            if (r + 4 <= rows) store(out + m * out_stride + r, four);
            else memcpy(out + m * out_stride + r, &four, (rows - r) * 4);
        }
    }
}

// Divide `count` things, such as tokens, into tiles of at most M, and call `tile(first, number)` for
// each. The type of the second argument holds the number as a constant.
template <int M, class Tile>
static inline void tile_of(int64_t m, int64_t t, Tile tile) {
    if (m == M) tile(t, std::integral_constant<int, M>());
    else if constexpr (M > 1) tile_of<M - 1>(m, t, tile);
}
template <int M, class Tile>
static inline void each_tile(int64_t count, Tile tile) {
    for (int64_t t = 0, m; t < count; t += m) {
        int64_t left = count - t, tiles = (left + M - 1) / M;
        m = (left + tiles - 1) / tiles;  // 8 are 4 and 4, not 6 and 2
        tile_of<M>(m, t, tile);
    }
}

// All tokens by `rows` rows of weights; `scratch` holds rows × size floats, aligned as Floats.
template <class F>
static void multiply(const uint8_t* weights, size_t stride, int64_t rows, const float* x,
                     size_t x_stride, int64_t tokens, int64_t size, float* out, size_t out_stride,
                     float* scratch) {
    bool aligned = F::KIND == F32::KIND && ((uintptr_t)weights | stride) % sizeof(Floats) == 0;
    if (tokens > 2 * MOST && !aligned) {
        for (int64_t r = 0; r < rows; ++r) {
            const uint8_t* row = weights + r * stride;
            for (size_t i = 0; i < stride; i += 64) __builtin_prefetch(row + AHEAD + i, 0, 2);
            widen<F>(row, size, scratch + r * size);
        }
        multiply<F32>((const uint8_t*)scratch, size * 4, rows, x, x_stride, tokens, size, out,
                      out_stride, scratch);
        return;
    }
    bool far = tokens <= 2 * MOST && stride * F::GROUP == (size_t)size * F::BYTES;
    each_tile<MOST>(tokens, [&](int64_t t, auto m) {
        strip<F, m>(weights, stride, rows, x + t * x_stride, x_stride, size, out + t * out_stride,
                    out_stride, far);
    });
}
