// Matrix products with weights as they are stored: rows of a format of lanes.h.
//
// Computes  out[t][n] = Σ over k of x[t][k] × weights[n][k] in float32; with weights of 4 bits
//           Σ over groups of scale × x_scale × Σ of q × q_x + minimum × Σ of x
// Shapes    x [tokens, size] float32, for 4 bits rounded to 8; weights [rows, size] in any
//           format, size a multiple of its GROUP; out [tokens, rows] float32
// Owns      each call: a panel of up to PANEL rows, for up to TOKENS tokens
// Moves     the weights once: they are what a product of a few tokens costs
// Oracle    float64, with x rounded likewise, in tests/test_cpp.py
// Idea      a lane sums every LANES-th term, in order, whatever the tile; so a row of the result
//           has the same bits with any number of tokens beside it. For more than 3 tiles a panel
//           is unpacked to float32 once. Otherwise four rows that share a load of x come from the
//           quarters of the matrix, and the next four follow them: a core prefetches four long
//           streams, but not four rows in one page. With 4 bits each lane takes a row: LANES rows
//           were interleaved when they were loaded, and are one stream. A group's integers add up
//           exactly.
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "lanes.h"

constexpr int PANEL = 32, TOKENS = 128;
constexpr int WIDTH = 2 * PANEL;  // from one token's results to the next's: room for two panels
constexpr int MOST = REGISTERS == 32 ? 6 : 2, FEW = 3 * MOST;  // tokens in a tile; in three
constexpr int AHEAD = 8192;  // bytes: what a core reads while the first of them are on their way

struct Room {  // scratch memory of one thread
    std::vector<Floats> memory;
    // `count` floats, aligned as Floats.
    float* floats(int64_t count) {
        if ((int64_t)memory.size() * LANES < count) memory.resize(count / LANES + 1);
        return (float*)memory.data();
    }
};

struct Rows {  // multiplied four at a time: these four lie `apart` rows from each other
    const uint8_t* data;
    int64_t stride, last;  // bytes from one row to the next, and the row that ends the matrix
    int64_t first = 0, apart = 1, along = 4;  // along: from four rows to the next four
    int64_t place(int64_t n) const { return first + n % 4 * apart + n / 4 * along; }
    const uint8_t* operator[](int64_t n) const { return data + std::min(place(n), last) * stride; }
};

// M tokens by `rows` rows, four at a time, for which `out` has room.
template <class F, int M>
static void strip(const Rows& weights, int64_t rows, const float* x, size_t x_stride, int64_t size,
                  float* out, size_t out_stride) {
    for (int64_t r = 0; r < rows; r += 4) {
        const uint8_t* row[] = {weights[r], weights[r + 1], weights[r + 2], weights[r + 3]};
        Floats sum[4][M] = {};
        for (int64_t k = 0; k < size; k += F::GROUP) {
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
        for (int m = 0; m < M; ++m)
            store(out + m * out_stride + r, sums(sum[0][m], sum[1][m], sum[2][m], sum[3][m]));
    }
}

// Divide `count` things, such as tokens, into tiles of M and what is left, and call
// `tile(first, number)` for each. The type of the second argument holds the number as a constant.
template <int M, class Tile>
static inline void each_tile(int64_t count, Tile tile, int64_t first = 0) {
    for (; first + M <= count; first += M) tile(first, std::integral_constant<int, M>());
    if constexpr (M > 1) each_tile<M - 1>(count, tile, first);
}

// All tokens by `rows` rows of weights; `scratch` holds rows × size floats, aligned as Floats.
template <class F>
static void multiply(const Rows& weights, int64_t rows, const float* x, size_t x_stride,
                     int64_t tokens, int64_t size, float* out, size_t out_stride, float* scratch) {
    const bool many = tokens > FEW;
    const Rows wide{(const uint8_t*)scratch, size * 4, rows - 1};
    for (int64_t r = 0; many && r < rows; ++r) widen<F>(weights[r], size, scratch + r * size);
    each_tile<MOST>(tokens, [&](int64_t t, auto m) {
        const float* from = x + t * x_stride;
        float* to = out + t * out_stride;
        if (many) strip<F32, m>(wide, rows, from, x_stride, size, to, out_stride);
        else strip<F, m>(weights, rows, from, x_stride, size, to, out_stride);
    });
}

constexpr int MOST_GROUPED = REGISTERS == 32 ? 8 : 4;  // tokens in a tile
typedef int16_t Pairs __attribute__((vector_size(4 * LANES)));

// Add to `sum` the products of unsigned bytes and of signed bytes x, four of each to a lane.
#if defined(__AVX512VNNI__)
typedef Ints Sums;
static inline Sums add_products(Sums sum, Words bytes, Words x) {
    __m512i to = bits<__m512i>(sum);
    return bits<Ints>(_mm512_dpbusd_epi32(to, bits<__m512i>(bytes), bits<__m512i>(x)));
}
static inline Ints total(Sums sum) { return sum; }
#else
// Two products share 16 bits here: numbers from 0 to 15 leave room for the sum of sixteen products.
typedef Pairs Sums;
static inline Sums add_products(Sums sum, Words bytes, Words x) {
#if defined(__AVX2__) && !defined(__AVX512F__)  // compilers do not find this instruction
    return sum + bits<Pairs>(_mm256_maddubs_epi16(bits<__m256i>(bytes), bits<__m256i>(x)));
#else
    Pairs a = bits<Pairs>(bytes), b = bits<Pairs>(x);
    return sum + (a & 255) * (b << 8 >> 8) + (a >> 8) * (b >> 8);
#endif
}
static inline Ints total(Sums sum) {
    return (bits<Ints>(sum) << 16 >> 16) + (bits<Ints>(sum) >> 16);
}
#endif

struct Rounded {  // 32 numbers of x in 8 bits
    float scale;
    int32_t sum;
    int8_t x[32];
};
static inline void round_groups(const float* x, int64_t size, Rounded* to) {
    for (const float* end = x + size; x < end; x += 32, ++to) {
        Floats high = {}, total = {};
        for (int i = 0; i < 32; i += LANES)
            high = larger(high, larger(load<Floats>(x + i), -load<Floats>(x + i)));
        float most = largest(high), by = most < 1e-30f ? 0.0f : 127.0f / most;  // which is finite
        for (int i = 0; i < 32; i += LANES) {
            Floats whole = load<Floats>(x + i) * by + ROUND;
            store(to->x + i, __builtin_convertvector(bits<Words>(whole), Bytes));
            total += whole - ROUND;
        }
        to->scale = most / 127.0f, to->sum = sum(total);
    }
}

template <class F>
constexpr bool INTERLEAVED = F::KIND > Q8_0::KIND;

// Call `piece(place in the row, place among LANES interleaved rows, bytes)` for each piece: of each
// group, the numbers of its head, 2 bytes each, and then its weights, 4 bytes at a time.
template <class F, class Piece>
static inline void each_piece(int64_t size, int64_t row, Piece piece) {
    for (int64_t at = 0, words; at < row_bytes<F>(size);) {
        for (words = at + F::HEAD; at < words; at += 2) piece(at, at * LANES + row * 2, 2);
        for (int w = 0; w < 4; ++w, at += 4) piece(at, at * LANES + row * 4, 4);
    }
}
// Interleave LANES rows from row `first` on.
template <class F>
static void interleave(const Rows& rows, int64_t first, int64_t size, uint8_t* to) {
    for (int64_t row = 0; row < LANES; ++row) {
        const uint8_t* from = rows[first + row];
        each_piece<F>(size, row, [=](int64_t in_row, int64_t among, int count) {
            memcpy(to + among, from + in_row, count);
        });
    }
}

// M tokens by LANES interleaved rows.
template <class F, int M>
static void strip(const uint8_t* weights, const Rounded* x, int64_t groups, float* out) {
    Floats result[M] = {};
    for (int64_t g = 0; g < groups; ++g, ++x, weights += F::BYTES * LANES) {
        for (int at = 0; at < F::BYTES * LANES; at += 64)
            __builtin_prefetch(weights + AHEAD + at, 0, 2);
        Sums sum[M] = {};
        for (int w = 0; w < 8; ++w) {
            Words four = load<Words>(weights + (F::HEAD + w % 4 * 4) * LANES);
            four = (w < 4 ? four : four >> 4) & 0x0f0f0f0f;
            for (int m = 0; m < M; ++m) {
                const int8_t* by = x[m * groups].x + w * 4;
                sum[m] = add_products(sum[m], four, Words{} + load<uint32_t>(by));
            }
        }
        const Floats scale = F16::unpack(weights, 0);
        for (int m = 0; m < M; ++m) {
            const Rounded& group = x[m * groups];
            Ints whole = total(sum[m]) - F::ZERO * group.sum;
            result[m] += __builtin_convertvector(whole, Floats) * (scale * group.scale);
            if (F::HEAD == 4)
                result[m] += F16::unpack(weights + 2 * LANES, 0) * (group.sum * group.scale);
        }
    }
    for (int m = 0; m < M; ++m) store(out + m * WIDTH, result[m]);
}

struct Part {  // `rows` rows of a matrix, in one format
    const uint8_t* data;
    int64_t rows, kind;
};
// Row n of a part as the file has it: in place or, if the row is interleaved, a copy.
template <class F>
static const uint8_t* row_of(const Part& part, int64_t size, int64_t n, uint8_t* copy) {
    const uint8_t* row = part.data + n * row_bytes<F>(size);
    if constexpr (!INTERLEAVED<F>) return row;
    else if (n / LANES == part.rows / LANES) return row;
    else each_piece<F>(size, n % LANES, [&](int64_t in_row, int64_t among, int count) {
        memcpy(copy + in_row, row - n % LANES * row_bytes<F>(size) + among, count);
    });
    return copy;
}
static inline int64_t panels(int64_t rows) { return (rows + PANEL - 1) / PANEL; }

// Multiplies tokens by panels of matrices, for one thread.
struct Multiplier {
    const float* x;
    int64_t size, kind;  // the highest of all parts: panels of gate and up are of the same rows
    Room& room;
    std::vector<Rounded> rounded = {};  // tokens, for weights of 4 bits: from this one on
    int64_t rounded_from = -1;

    // Multiply panel `panel` of a part by `count` tokens from `from` on, into out [count, WIDTH].
    // Returns where its rows lie: in all quarters of the part, or one after the other.
    Rows panel(const Part& part, int64_t panel, int64_t from, int64_t count, float* out) {
        Rows weights{part.data, 0, part.rows - 1, panel * PANEL};
        if (count <= FEW && kind <= Q8_0::KIND)
            weights.first /= 4, weights.apart = panels(part.rows) * PANEL / 4, weights.along = 1;
        WeightFormat::with(part.kind, [&](auto f) {
            using F = decltype(f);
            weights.stride = row_bytes<F>(size);
            if constexpr (F::KIND <= Q8_0::KIND) {
                multiply<F>(weights, PANEL, x + from * size, size, count, size, out, WIDTH,
                            room.floats(size * PANEL));
            } else {
                const int64_t groups = size / 32;
                if (from != rounded_from) {
                    rounded.resize(count * groups), rounded_from = from;
                    round_groups(x + from * size, count * size, rounded.data());
                }
                auto* copy = (uint8_t*)room.floats(LANES * weights.stride / 4);
                for (int64_t r = 0; r < PANEL; r += LANES) {
                    const bool ends = weights.place(r) + LANES > part.rows;  // not interleaved yet
                    if (ends) interleave<F>(weights, r, size, copy);
                    each_tile<MOST_GROUPED>(count, [&](int64_t t, auto m) {
                        const uint8_t* rows = ends ? copy : weights[r];
                        strip<F, m>(rows, &rounded[t * groups], groups, out + t * WIDTH + r);
                    });
                }
            }
        });
        return weights;
    }
};
