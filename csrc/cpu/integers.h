// Integer products with weights in groups, and the product with one panel of a matrix in any format.
//
// Computes  out[t][n] = Σ over groups of scale × x_scale × Σ of q × q_x + minimum × Σ of x
// Shapes    weights [rows, size] in Q8_0, Q4_0 or Q4_1; x in groups of 32 bytes with a scale each
// Owns      each call: a panel of up to PANEL rows for up to TOKENS tokens; a lane is a row
// Moves     the weights once
// Oracle    float64 with x rounded likewise, in tests/test_cpp.py
// Idea      one instruction multiplies 4 × LANES bytes; a vector of float32 has only LANES numbers.
//           The sum of a group is exact, and groups are added in order, so the result does not
//           depend on the size of the tile.
#pragma once
#include "product.h"

constexpr int MOST_GROUPED = REGISTERS == 32 ? 8 : 4;  // tokens in a tile
typedef uint32_t FourWords __attribute__((vector_size(16)));
typedef int16_t Pairs __attribute__((vector_size(4 * LANES)));

// Add to `sum` the products of unsigned bytes and of signed bytes x, four of each to a lane.
#if defined(__AVX512VNNI__)
typedef Ints Sums;
constexpr bool WHOLE_BYTES = true;
static inline Sums add_products(Sums sum, Words bytes, Words x) {
    return bits<Ints>(_mm512_dpbusd_epi32(bits<__m512i>(sum), bits<__m512i>(bytes), bits<__m512i>(x)));
}
static inline Ints total(Sums sum) { return sum; }
#else
// Here two products share 16 bits. Bytes from 0 to 15 leave room for the sum of sixteen products, so
// larger ones are multiplied half by half.
typedef Pairs Sums;
constexpr bool WHOLE_BYTES = false;
static inline Sums add_products(Sums sum, Words bytes, Words x) {
#if defined(__AVX512BW__)  // compilers do not find this instruction
    return sum + bits<Pairs>(_mm512_maddubs_epi16(bits<__m512i>(bytes), bits<__m512i>(x)));
#elif defined(__AVX2__) && !defined(__AVX512F__)
    return sum + bits<Pairs>(_mm256_maddubs_epi16(bits<__m256i>(bytes), bits<__m256i>(x)));
#else
    Pairs a = bits<Pairs>(bytes), b = bits<Pairs>(x);
    return sum + (a & 255) * (b << 8 >> 8) + (a >> 8) * (b >> 8);
#endif
}
static inline Ints total(Sums sum) {
    Ints pair = bits<Ints>(sum);
    return (pair << 16 >> 16) + (pair >> 16);
}
#endif

struct Rounded {  // a group of x: 32 numbers in 8 bits, their scale, and their sum
    float scale;
    int32_t sum;
    int8_t x[32];
};
static inline void round_groups(const float* x, int64_t size, Rounded* to) {
    const float round = 12582912.0f;  // as in `exponential`
    for (const float* end = x + size; x < end; x += 32, ++to) {
        Floats high = {};
        Ints total = {};
        for (int i = 0; i < 32; i += LANES) {
            Floats value = load<Floats>(x + i);
            high = larger(high, larger(value, -value));
        }
        float most = largest(high);
        float by = most < 1e-30f ? 0.0f : 127.0f / most;  // which is finite
        for (int i = 0; i < 32; i += LANES) {
            Ints whole = bits<Ints>(load<Floats>(x + i) * by + round) - bits<int32_t>(round);
            store(to->x + i, __builtin_convertvector(whole, Bytes));
            total += whole;
        }
        to->scale = most / 127.0f, to->sum = 0;
        for (int i = 0; i < LANES; ++i) to->sum += total[i];
    }
}

// A group of LANES rows, of which each word is four bytes of each row.
template <class F>
struct Grouped {
    static constexpr bool IS_Q8 = F::KIND == Q8_0::KIND, HAS_MINIMUM = F::KIND == Q4_1::KIND;
    static constexpr int WORDS = IS_Q8 ? 8 : 4, HEAD = F::BYTES - 4 * WORDS;
    static constexpr int ZERO = IS_Q8 ? 128 : HAS_MINIMUM ? 0 : 8;  // what stands for 0
    static constexpr int PASSES = IS_Q8 && !WHOLE_BYTES ? 2 : 1;    // the second for upper halves
    Words head, words[WORDS];  // the head holds a scale, and above it a minimum, in float16

    // The numbers 4 × w to 4 × w + 3 of each row, so that they are unsigned.
    inline Words numbers(int w, int pass) const {
        if (!IS_Q8) return (w < 4 ? words[w] : words[w - 4] >> 4) & 0x0f0f0f0f;
        Words bytes = words[w % WORDS] ^ 0x80808080;
        return PASSES == 1 ? bytes : bytes >> 4 * pass & 0x0f0f0f0f;
    }
    inline Floats scale() const { return F16::wide(head & 0xffff); }
    inline Floats minimum() const { return F16::wide(head >> 16); }
};
// Four rows at a time: their words are transposed.
template <class F>
static void interleave(const uint8_t* weights, size_t stride, int64_t rows, Grouped<F>* groups) {
    constexpr int HEAD = Grouped<F>::HEAD;
    for (int64_t first = 0; first < LANES; first += 4) {
        const uint8_t *row[4], *next = weights + first * stride + AHEAD;
        for (int i = 0; i < 4; ++i) row[i] = weights + std::min(first + i, rows - 1) * stride;
        uint32_t* to = (uint32_t*)groups + first;  // then LANES from one word to the next
        for (int64_t at = 0; at < (int64_t)stride; at += F::BYTES, next += 4 * F::BYTES) {
            for (int i = 0; i < 4 * F::BYTES; i += 64) __builtin_prefetch(next + i, 0, 2);
            for (int i = 0; i < 4; ++i)
                to[i] = HEAD == 4 ? load<uint32_t>(row[i] + at) : load<uint16_t>(row[i] + at);
            to += LANES;
            for (int w = 0; w < Grouped<F>::WORDS; w += 4) {
                FourWords words[4];
                for (int i = 0; i < 4; ++i) words[i] = load<FourWords>(row[i] + at + HEAD + 4 * w);
                transpose(words);
                for (int n = 0; n < 4; ++n, to += LANES) store(to, words[n]);
            }
        }
    }
}

// M tokens by LANES rows.
template <class F, int M>
static void strip(const Grouped<F>* weights, const Rounded* x, int64_t groups, float* out) {
    typedef Grouped<F> G;
    Floats result[M] = {};
    for (int64_t g = 0; g < groups; ++g, ++weights, ++x) {
        Ints whole[M];
        for (int m = 0; m < M; ++m) whole[m] = Ints{} - G::ZERO * x[m * groups].sum;
        for (int pass = 0; pass < G::PASSES; ++pass) {
            Sums sum[M] = {};
            for (int w = 0; w < 8; ++w) {
                Words numbers = weights->numbers(w, pass);
                for (int m = 0; m < M; ++m)
                    sum[m] = add_products(sum[m], numbers,
                                          Words{} + load<uint32_t>(x[m * groups].x + 4 * w));
            }
            for (int m = 0; m < M; ++m) whole[m] += total(sum[m]) << 4 * pass;
        }
        Floats scale = weights->scale();
        for (int m = 0; m < M; ++m) {
            const Rounded& group = x[m * groups];
            result[m] += __builtin_convertvector(whole[m], Floats) * (scale * group.scale);
            if (G::HAS_MINIMUM) result[m] += weights->minimum() * (group.sum * group.scale);
        }
    }
    for (int m = 0; m < M; ++m) store(out + m * PANEL, result[m]);
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
            if constexpr (F::KIND >= Q8_0::KIND)
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
        auto* panel = (Grouped<F>*)room.floats(groups * sizeof(Grouped<F>) / sizeof(float));
        for (int64_t r = 0; r < rows; r += LANES) {
            interleave<F>(weights + r * stride, stride, rows - r, panel);
            each_tile<MOST_GROUPED>(count, [&](int64_t t, auto m) {
                strip<F, m>(panel, rounded.data() + t * groups, groups, out + t * PANEL + r);
            });
        }
    }

    const float* x;
    int64_t size, rounded_from = -1;
    Room& room;
    std::vector<Rounded> rounded;  // tokens in 8 bits, if weights are in groups
};
