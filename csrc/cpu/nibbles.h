// Integer products with weights of 4 bits, and the product with one panel of a matrix in any format.
//
// Computes  out[t][n] = Σ over groups of scale × x_scale × Σ of q × q_x + minimum × Σ of x
// Shapes    weights [rows, size] in Q4_0 or Q4_1; x in groups of 32 bytes with a scale each
// Owns      each call: a panel of up to PANEL rows for up to TOKENS tokens; a lane is a row
// Moves     the weights once
// Oracle    float64 with x rounded likewise, in tests/test_cpp.py
// Idea      the product of a 4-bit and an 8-bit number fits in 16 bits, and so does the sum of
//           sixteen of them, so one instruction multiplies 4 × LANES bytes; a vector of float32 has
//           only LANES numbers. The sum of a group is exact, and groups are added in order, so the
//           result does not depend on the size of the tile.
#pragma once
#include "product.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

constexpr int MOST_GROUPED = REGISTERS == 32 ? 8 : 4;  // tokens in a tile
typedef uint32_t FourWords __attribute__((vector_size(16)));
typedef int16_t Pairs __attribute__((vector_size(4 * LANES)));

// Multiply bytes from 0 to 15 by signed bytes, and add the products of neighbors in pairs.
static inline Pairs multiply_bytes(Words weights, Words x) {
#if defined(__AVX512BW__)  // compilers do not find this instruction
    return bits<Pairs>(_mm512_maddubs_epi16(bits<__m512i>(weights), bits<__m512i>(x)));
#elif defined(__AVX2__) && !defined(__AVX512F__)
    return bits<Pairs>(_mm256_maddubs_epi16(bits<__m256i>(weights), bits<__m256i>(x)));
#else
    Pairs a = bits<Pairs>(weights), b = bits<Pairs>(x);
    return (a & 255) * (b << 8 >> 8) + (a >> 8) * (b >> 8);
#endif
}

struct Rounded {  // a group of x: 32 numbers in 8 bits, their scale, and the sum of the rounded x
    float scale, sum;
    int8_t x[32];
};
static inline void round_groups(const float* x, int64_t size, Rounded* to) {
    const float round = 12582912.0f;  // as in `exponential`
    for (const float* end = x + size; x < end; x += 32, ++to) {
        Floats high = {}, total = {};
        for (int i = 0; i < 32; i += LANES) {
            Floats value = load<Floats>(x + i);
            high = larger(high, larger(value, -value));
        }
        float most = largest(high);
        float by = most < 1e-30f ? 0.0f : 127.0f / most;  // which is finite
        for (int i = 0; i < 32; i += LANES) {
            Floats whole = load<Floats>(x + i) * by + round;
            store(to->x + i, __builtin_convertvector(bits<Words>(whole), Bytes));
            total += whole - round;
        }
        to->scale = most / 127.0f;
        to->sum = sum(total) * to->scale;
    }
}

struct Grouped {  // a group of LANES rows: byte i of words[w] is number 4 × w + i of its row
    Floats scale, minimum;
    Words words[8];
};
template <class F>
static void interleave(const uint8_t* weights, size_t stride, int64_t rows, int64_t size,
                       Grouped* to) {
    const uint8_t *row[LANES], *end = weights + size / 32 * F::BYTES, *next = weights + AHEAD;
    for (int i = 0; i < LANES; ++i) row[i] = weights + std::min<int64_t>(i, rows - 1) * stride;
    for (int64_t at = 0; weights + at < end; at += F::BYTES, next += LANES * F::BYTES, ++to) {
        // Some lines twice: to ask for each once takes a branch, which costs more.
        for (int line = 0; line < LANES * F::BYTES; line += 64) __builtin_prefetch(next + line);
        Words head = {};
        for (int i = 0; i < LANES; ++i)
            head[i] = F::KIND == Q4_1::KIND ? load<uint32_t>(row[i] + at)
                                            : load<uint16_t>(row[i] + at);
        to->scale = from_half<Floats>(head & 0xffff);
        to->minimum = F::KIND == Q4_1::KIND ? from_half<Floats>(head >> 16) : to->scale * -8.0f;
        for (int i = 0; i < LANES; i += 4) {  // four rows' words, transposed
            FourWords word[4];
            for (int r = 0; r < 4; ++r) word[r] = load<FourWords>(row[i + r] + at + F::BYTES - 16);
            transpose(word);
            for (int w = 0; w < 4; ++w) {
                store((uint32_t*)&to->words[w] + i, word[w] & 0x0f0f0f0f);
                store((uint32_t*)&to->words[w + 4] + i, word[w] >> 4 & 0x0f0f0f0f);
            }
        }
    }
}

// M tokens by LANES rows.
template <int M>
static void strip(const Grouped* weights, const Rounded* x, int64_t groups, float* out) {
    Floats total[M] = {};
    for (int64_t g = 0; g < groups; ++g, ++weights, ++x) {
        Pairs sum[M] = {};
        for (int w = 0; w < 8; ++w)
            for (int m = 0; m < M; ++m)
                sum[m] += multiply_bytes(weights->words[w],
                                         Words{} + load<uint32_t>(x[m * groups].x + 4 * w));
        for (int m = 0; m < M; ++m) {
            Ints pair = bits<Ints>(sum[m]), whole = (pair << 16 >> 16) + (pair >> 16);
            Floats scale = weights->scale * x[m * groups].scale;
            total[m] += __builtin_convertvector(whole, Floats) * scale;
            total[m] += weights->minimum * x[m * groups].sum;
        }
    }
    for (int m = 0; m < M; ++m) store(out + m * PANEL, total[m]);
}

struct Part {  // `rows` rows of a matrix, in one format
    const uint8_t* data;
    int64_t rows, kind;
};

static inline int64_t panels(int64_t rows) { return (rows + PANEL - 1) / PANEL; }

// Multiplies tokens by panels of matrices, for one thread.
class Multiplier {
public:
    Multiplier(const float* x, int64_t size, Room& room) : x(x), size(size), room(room) {}

    // Multiply panel `panel` of a part by `count` tokens from `first` on, into out [count, PANEL];
    // returns how many rows the panel has.
    int64_t panel(const Part& part, int64_t panel, int64_t first, int64_t count, float* out) {
        int64_t row = panel * PANEL, rows = std::min<int64_t>(PANEL, part.rows - row);
        WeightFormat::with(part.kind, [&](auto f) {
            using F = decltype(f);
            const size_t stride = row_bytes<F>(size);
            const uint8_t* weights = part.data + row * stride;
            if constexpr (F::KIND == Q4_0::KIND || F::KIND == Q4_1::KIND)
                multiply_integers<F>(weights, stride, rows, first, count, out);
            else
                multiply<F>(weights, stride, rows, x + first * size, size, count, size, out, PANEL,
                            room.floats(size * PANEL));
        });
        return rows;
    }

private:
    template <class F>
    void multiply_integers(const uint8_t* weights, size_t stride, int64_t rows, int64_t first,
                           int64_t count, float* out) {
        const int64_t groups = size / 32;
        if (first != rounded_from) {  // otherwise these tokens were rounded for the panel before
            rounded.resize(count * groups);
            round_groups(x + first * size, count * size, rounded.data());
            rounded_from = first;
        }
        Grouped* panel = (Grouped*)room.floats(groups * sizeof(Grouped) / sizeof(float));
        for (int64_t r = 0; r < rows; r += LANES) {
            interleave<F>(weights + r * stride, stride, rows - r, size, panel);
            each_tile<MOST_GROUPED>(count, [&](int64_t t, auto m) {
                strip<m>(panel, rounded.data() + t * groups, groups, out + t * PANEL + r);
            });
        }
    }

    const float* x;
    int64_t size, rounded_from = -1;
    Room& room;
    std::vector<Rounded> rounded;  // tokens in 8 bits, if there are weights of 4
};
