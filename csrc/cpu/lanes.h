// Vectors of floats, and the formats in which weights and caches are stored.
//
// Computes  conversions between stored numbers and float32, sums over lanes, exponentials
// Shapes    LANES floats together: what one register of this processor holds
// Owns      no memory; every function works on values or on the addresses it is given
// Moves     a group of a format in once: see BYTES of each
// Oracle    numpy and the gguf package, in tests/test_cpp.py
// Idea      the compiler's vector extensions spell `a * b + c` once for x86-64 and arm64.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__AVX__)  // what is below needs no header for SSE
#include <immintrin.h>
#endif
#if defined(__AVX512F__)
constexpr int LANES = 16, REGISTERS = 32;
#elif defined(__AVX__)
constexpr int LANES = 8, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int LANES = 4, REGISTERS = 32;
#else
constexpr int LANES = 4, REGISTERS = 16;
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint8_t Bytes __attribute__((vector_size(LANES)));
typedef uint16_t Shorts __attribute__((vector_size(2 * LANES)));
template <class V>
static inline V load(const void* from) {
    V value;
    memcpy(&value, from, sizeof value);
    return value;
}
template <class V>
static inline void store(void* to, V value) {
    memcpy(to, &value, sizeof value);
}
template <class To, class From>
static inline To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits, read as another type");
    return load<To>(&from);
}
// The value, from now on in a register: compilers for x86-64 would load it again at each use.
static inline Floats kept(Floats value) {
#if defined(__x86_64__)
    asm("" : "+v"(value));
#endif
    return value;
}
static inline Floats splat(float value) { return Floats{} + value; }
static inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

#if defined(__has_builtin) && __has_builtin(__builtin_shufflevector)
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (decltype(a > b)){__VA_ARGS__})
#endif
typedef float Quad __attribute__((vector_size(16)));

// The sums of four vectors. Halves are added to each other until four lanes are left, and of these
// 0 + 2 to 1 + 3: the order of a sum never depends on the caller.
static inline Quad fold(Floats value) {
    Quad quads[LANES / 4];
    memcpy(quads, &value, sizeof value);
    for (int n = LANES / 8; n > 0; n /= 2)
        for (int i = 0; i < n; ++i) quads[i] += quads[i + n];
    return quads[0];
}
static inline Quad sums(Floats a, Floats b, Floats c, Floats d) {
    auto halves = [](Quad a, Quad b) { return PICK(a, b, 0, 4, 1, 5) + PICK(a, b, 2, 6, 3, 7); };
    Quad ab = halves(fold(a), fold(b)), cd = halves(fold(c), fold(d));
    return PICK(ab, cd, 0, 1, 4, 5) + PICK(ab, cd, 2, 3, 6, 7);
}
static inline float sum(Floats value) { return sums(value, value, value, value)[0]; }

static inline float largest(Floats value) {
    for (int i = 1; i < LANES; ++i) value[0] = value[i] > value[0] ? value[i] : value[0];
    return value[0];
}

// e^x within 2 units in the last place; 0 below -87 and infinite above 88.3, where float32 ends.
constexpr float ROUND = 12582912.0f;  // 1.5 × 2^23: adding it rounds to a whole number
static inline Floats exponential(Floats x) {
    Floats shifted = x * 1.44269504f + ROUND, whole = shifted - ROUND;
    Floats r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    const float terms[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                           5.0000001201e-1f};
    Floats y = splat(1.9875691500e-4f);
    for (float term : terms) y = y * r + term;
    y = y * r * r + r + 1.0f;
    Ints power = (bits<Ints>(shifted) - bits<int32_t>(ROUND) + 127) << 23;
    Floats result = x < splat(-87.0f) ? Floats{} : y * bits<Floats>(power);
    return x > splat(88.3f) ? splat(__builtin_inff()) : result;
}

// LANES small integers as 32 bits. A loop, because GCC's conversions take bytes one by one.
template <class V, class Small>
static inline V integers(const void* from) {
    Small small[LANES];
    memcpy(small, from, sizeof small);
    int32_t lane[LANES];
    for (int i = 0; i < LANES; ++i) lane[i] = small[i];
    return load<V>(lane);
}

// The formats. `unpack(group, v)` returns the v-th LANES numbers of a group of BYTES bytes.
struct F32 {
    static constexpr int KIND = 0, GROUP = LANES, BYTES = 4 * LANES;
    static inline Floats unpack(const uint8_t* group, int) { return load<Floats>(group); }
    static inline void pack(void* to, Floats value) { store(to, value); }
};
// Floats of BITS bits with FRACTION bits behind the implicit 1. What is above LIMIT, in float32, is
// packed as TOP, and what is no number as INVALID.
template <int NUMBER, int BITS, int FRACTION, uint32_t LIMIT, uint32_t TOP, uint32_t INVALID>
struct Small {
    static constexpr int KIND = NUMBER, GROUP = LANES, BYTES = BITS / 8 * LANES;
    static constexpr uint32_t BIAS = (1 << (BITS - 2 - FRACTION)) - 1, SHIFT = 23 - FRACTION;
    static constexpr uint32_t SIGN = 1 << (BITS - 1), ONE = 1 << 23;  // ONE: of float32's exponent
    static constexpr uint32_t NORMAL = (128 - BIAS) * ONE;  // from here on there is an implicit 1

    // Shift the fields into place and correct the exponent. A number below NORMAL is made with an
    // implicit 1, which is then taken off. Infinities are not expected.
    static inline Floats expand(Words code) {
        Words magnitude = code & (SIGN - 1), below = (magnitude - (1 << FRACTION)) >> 31;
        Floats value = bits<Floats>((magnitude << SHIFT) + (NORMAL - ONE) + below * ONE);
        value -= bits<Floats>((0 - below) & NORMAL);
        return bits<Floats>(bits<Words>(value) | (code & SIGN) << (32 - BITS));
    }
    // Rounded to nearest, ties to even.
    static inline void pack(void* to, Floats value) {
        const uint32_t unit = (151 - BIAS - FRACTION) * ONE;  // its last bit is worth code 1
        Words all = bits<Words>(value), magnitude = all & 0x7fffffff;
        Words half = ((magnitude >> SHIFT) & 1) + ((1 << (SHIFT - 1)) - 1);
        Words normal = (magnitude - (NORMAL - ONE) + half) >> SHIFT;
        Words below = bits<Words>(bits<Floats>(magnitude) + bits<float>(unit)) - unit;
        Words code = magnitude < NORMAL ? below : normal;
        code = magnitude > LIMIT ? Words{} + TOP : code;
        code = magnitude > 0x7f800000 ? Words{} + INVALID : code;
        code |= all >> (32 - BITS) & SIGN;
        if constexpr (BITS == 8) store(to, __builtin_convertvector(code, Bytes));
        else store(to, __builtin_convertvector(code, Shorts));
    }
};
struct F16 : Small<1, 16, 10, 0x477fffff, 0x7c00, 0x7e00> {
    static inline Floats unpack(const uint8_t* group, int) {
#if defined(__AVX512F__)  // one instruction, which compilers do not find
        return bits<Floats>(_mm512_cvtph_ps(load<__m256i>(group)));
#elif defined(__F16C__)
        return bits<Floats>(_mm256_cvtph_ps(load<__m128i>(group)));
#else
        return expand(integers<Words, uint16_t>(group));
#endif
    }
};
struct BF16 : Small<2, 16, 7, 0x7f7fffff, 0x7f80, 0x7fc0> {
    static inline Floats unpack(const uint8_t* group, int) {
        return bits<Floats>(integers<Words, uint16_t>(group) << 16);
    }
};
struct E4M3 : Small<6, 8, 3, 0x43e00000, 0x7e, 0x7f> {  // of a cache; one NaN and no infinity
    static inline Floats unpack(const uint8_t* group, int) {
        Words code = integers<Words, uint8_t>(group), is_nan = ((code & 0x7f) + 1) >> 7;
        return bits<Floats>(bits<Words>(expand(code)) | ((0 - is_nan) & 0x7fc00000));
    }
};
// A float16 in all lanes, and alone.
static inline Floats scales_at(const uint8_t* at) {
    Shorts all = Shorts{} + load<uint16_t>(at);
    return F16::unpack((const uint8_t*)&all, 0);
}
static inline float scale_at(const uint8_t* at) { return scales_at(at)[0]; }
// GGUF's groups: a scale in float16, perhaps a minimum, and 32 numbers of 8 or 4 bits. Byte i of 16
// holds number i in its lower half and number i + 16 in its upper half.
template <int NUMBER, int BITS, bool HAS_MINIMUM>
struct Quantized {
    static constexpr int KIND = NUMBER, GROUP = 32, HEAD = HAS_MINIMUM ? 4 : 2;
    static constexpr int BYTES = HEAD + 4 * BITS;
    static constexpr int ZERO = BITS == 8 || HAS_MINIMUM ? 0 : 8;  // what stands for 0
    static inline Floats unpack(const uint8_t* group, int v) {
        const uint8_t* at = group + HEAD + v * LANES % (4 * BITS);
        Ints q = BITS == 8 ? integers<Ints, int8_t>(at) : integers<Ints, uint8_t>(at);
        if (BITS == 4) q = ((v * LANES < 16 ? q : q >> 4) & 15) - ZERO;
        Floats number = __builtin_convertvector(q, Floats) * scales_at(group);
        return HAS_MINIMUM ? number + scales_at(group + 2) : number;
    }
};
using Q8_0 = Quantized<3, 8, false>;
using Q4_0 = Quantized<4, 4, false>;
using Q4_1 = Quantized<5, 4, true>;

// `with(kind, [&](auto format) { ... })` calls a function with that one of the formats.
template <class... Formats>
struct OneOf {
    template <class Function>
    static inline void with(int64_t kind, Function f) {
        ((kind == Formats::KIND ? f(Formats()) : void()), ...);
    }
};
using CacheFormat = OneOf<F32, F16, BF16, E4M3>;
using WeightFormat = OneOf<F32, F16, BF16, Q8_0, Q4_0, Q4_1>;

template <class F>
static inline size_t row_bytes(int64_t size) {
    return size / F::GROUP * F::BYTES;
}
// `size` stored numbers, whole groups, as float32.
template <class F>
static inline void widen(const uint8_t* group, int64_t size, float* to) {
    for (const float* end = to + size; to < end; to += F::GROUP, group += F::BYTES)
        for (int v = 0; v < F::GROUP / LANES; ++v) store(to + v * LANES, F::unpack(group, v));
}
// `size` numbers, of whole vectors, in a format of a cache.
template <class F>
static inline void narrow(const float* from, int64_t size, uint8_t* to) {
    for (int64_t i = 0; i < size; i += LANES, to += F::BYTES) {
        uint8_t packed[F::BYTES];
        F::pack(packed, load<Floats>(from + i));
        memcpy(to, packed, size - i < LANES ? (size - i) * (F::BYTES / F::GROUP) : F::BYTES);
    }
}
