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
#if defined(__x86_64__)
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
// The value, from now on in a register: a compiler may load it again at each use otherwise, and a
// product then waits for loads.
static inline Floats kept(Floats value) {
#if defined(__x86_64__)
    asm("" : "+v"(value));
#elif defined(__aarch64__)
    asm("" : "+w"(value));
#endif
    return value;
}
static inline Floats splat(float value) { return Floats{} + value; }
static inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

#if defined(__has_builtin) && __has_builtin(__builtin_shufflevector)
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (Four){__VA_ARGS__})
typedef int32_t Four __attribute__((vector_size(16)));
#endif
typedef float Quad __attribute__((vector_size(16)));

// Four vectors of four, rows to columns.
template <class V>
static inline void transpose(V (&rows)[4]) {
    V a = PICK(rows[0], rows[1], 0, 4, 1, 5), b = PICK(rows[2], rows[3], 0, 4, 1, 5);
    V c = PICK(rows[0], rows[1], 2, 6, 3, 7), d = PICK(rows[2], rows[3], 2, 6, 3, 7);
    rows[0] = PICK(a, b, 0, 1, 4, 5), rows[1] = PICK(a, b, 2, 3, 6, 7);
    rows[2] = PICK(c, d, 0, 1, 4, 5), rows[3] = PICK(c, d, 2, 3, 6, 7);
}

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
#if defined(__AVX512F__)  // the same, with half as many shuffles
    __m512 ab = _mm512_shuffle_f32x4(a, b, 0x44) + _mm512_shuffle_f32x4(a, b, 0xee);
    __m512 cd = _mm512_shuffle_f32x4(c, d, 0x44) + _mm512_shuffle_f32x4(c, d, 0xee);
    __m512 all = _mm512_shuffle_f32x4(ab, cd, 0x88) + _mm512_shuffle_f32x4(ab, cd, 0xdd);
    all += _mm512_permute_ps(all, 0x4e), all += _mm512_permute_ps(all, 0xb1);
    return _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, all));
#else
    Quad lanes[4] = {fold(a), fold(b), fold(c), fold(d)};
    transpose(lanes);
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
#endif
}
static inline float sum(Floats value) { return sums(value, value, value, value)[0]; }

static inline float largest(Floats value) {
    for (int i = 1; i < LANES; ++i) value[0] = value[i] > value[0] ? value[i] : value[0];
    return value[0];
}

// e^x within 2 units in the last place; 0 below -87 and infinite above 88.3, where float32 ends.
static inline Floats exponential(Floats x) {
    const float round = 12582912.0f;  // 1.5 × 2^23: adding it rounds to a whole number
    Floats shifted = x * 1.44269504f + round, whole = shifted - round;
    Floats r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    Floats y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    Ints power = (bits<Ints>(shifted) - bits<int32_t>(round) + 127) << 23;
    Floats result = x < splat(-87.0f) ? Floats{} : y * bits<Floats>(power);
    return x > splat(88.3f) ? splat(__builtin_inff()) : result;
}

// LANES small integers as 32 bits. A loop, because compilers see the one instruction in it that
// their conversions of vectors hide.
template <class V, class Small>
static inline V integers(const void* from) {
    Small small[LANES];
    memcpy(small, from, sizeof small);
    int32_t lane[LANES];
    for (int i = 0; i < LANES; ++i) lane[i] = small[i];
    return load<V>(lane);
}

// float16 to float32: shift the fields into place and correct the exponent. A number below 2^-14
// has no implicit 1: it is made with one, which is then taken off. Infinities are not expected.
template <class F, class W>
static inline F from_half(W half) {
    W magnitude = half & 0x7fff, small = (magnitude - 0x400) >> 31, sign = (half & 0x8000) << 16;
    F value = bits<F>((magnitude << 13) + 0x38000000 + (small << 23));
    return bits<F>(bits<W>(value - bits<F>((0 - small) & 0x38800000)) | sign);
}

// float32 to float16, rounded to nearest, ties to even; what is too large becomes infinite.
static inline Words to_half(Floats value) {
    Words all = bits<Words>(value), sign = (all >> 16) & 0x8000, magnitude = all & 0x7fffffff;
    Words normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    Floats tiny = bits<Floats>(magnitude) + 0.5f;  // whose last bit is worth 2^-24
    Words small = bits<Words>(tiny) - 0x3f000000;
    Words half = magnitude < 0x38800000 ? small : normal;
    half = magnitude >= 0x47800000 ? Words{} + 0x7c00 : half;
    half = magnitude > 0x7f800000 ? Words{} + 0x7e00 : half;
    return sign | half;
}

// The formats. `unpack(group, v)` returns the v-th LANES numbers of a group of BYTES bytes.
struct F32 {
    static constexpr int KIND = 0, GROUP = LANES, BYTES = 4 * LANES;
    static inline Floats unpack(const uint8_t* group, int) { return load<Floats>(group); }
    static inline void pack(void* to, Floats value) { store(to, value); }
};
struct F16 {
    static constexpr int KIND = 1, GROUP = LANES, BYTES = 2 * LANES;
    static inline Floats unpack(const uint8_t* group, int) {
#if defined(__AVX512F__)  // one instruction, which compilers do not find
        return bits<Floats>(_mm512_cvtph_ps(load<__m256i>(group)));
#elif defined(__F16C__)
        return bits<Floats>(_mm256_cvtph_ps(load<__m128i>(group)));
#else
        return from_half<Floats>(integers<Words, uint16_t>(group));
#endif
    }
    static inline Floats wide(Words halves) {
        Shorts narrow = __builtin_convertvector(halves, Shorts);
        return unpack((const uint8_t*)&narrow, 0);
    }
    static inline void pack(void* to, Floats value) {
        store(to, __builtin_convertvector(to_half(value), Shorts));
    }
};
struct BF16 {
    static constexpr int KIND = 2, GROUP = LANES, BYTES = 2 * LANES;
    static inline Floats unpack(const uint8_t* group, int) {
        return bits<Floats>(integers<Words, uint16_t>(group) << 16);
    }
    static inline void pack(void* to, Floats value) {
        Words all = bits<Words>(value);
        Words rounded = (all + 0x7fff + ((all >> 16) & 1)) >> 16;
        rounded = (all & 0x7fffffff) > 0x7f800000 ? Words{} + 0x7fc0 : rounded;
        store(to, __builtin_convertvector(rounded, Shorts));
    }
};
struct E4M3 {  // of a cache: 4 bits of exponent, 3 of fraction, one NaN and no infinity
    static constexpr int KIND = 6, GROUP = LANES, BYTES = LANES;
    // As from_half: below 2^-6 there is no implicit 1.
    static inline Floats unpack(const uint8_t* group, int) {
        Words code = integers<Words, uint8_t>(group), magnitude = code & 0x7f;
        Words small = (magnitude - 8) >> 31, is_nan = (magnitude + 1) >> 7;
        Floats value = bits<Floats>((magnitude << 20) + 0x3c000000 + (small << 23));
        value -= bits<Floats>((0 - small) & 0x3c800000);
        return bits<Floats>(bits<Words>(value) | (code & 0x80) << 24 | ((0 - is_nan) & 0x7fc00000));
    }
    // Rounded to nearest, ties to even; what is too large becomes 448.
    static inline void pack(void* to, Floats value) {
        Words all = bits<Words>(value), sign = (all >> 24) & 0x80, magnitude = all & 0x7fffffff;
        Words normal = (magnitude - 0x3c000000 + 0x7ffff + ((magnitude >> 20) & 1)) >> 20;
        Floats tiny = bits<Floats>(magnitude) + 16384.0f;  // whose last bit is worth 2^-9
        Words code = magnitude < 0x3c800000 ? bits<Words>(tiny) - 0x46800000 : normal;
        code = magnitude > 0x43e00000 ? Words{} + 0x7e : code;
        code = magnitude > 0x7f800000 ? Words{} + 0x7f : code;
        store(to, __builtin_convertvector(sign | code, Bytes));
    }
};
static inline float scale_at(const uint8_t* at) {
#if defined(__F16C__) && defined(__FLT16_MAX__)  // one instruction in place of ten
    return load<_Float16>(at);
#else
    return from_half<float>((uint32_t)load<uint16_t>(at));
#endif
}
struct Q8_0 {  // GGUF: a scale in float16, and 32 signed bytes
    static constexpr int KIND = 3, GROUP = 32, BYTES = 34;
    static inline Floats unpack(const uint8_t* group, int v) {
        Ints q = integers<Ints, int8_t>(group + 2 + v * LANES);
        return __builtin_convertvector(q, Floats) * scale_at(group);
    }
};
// Byte i of 16 holds number i in its lower half and number i + 16 in its upper half.
static inline Floats nibbles(const uint8_t* from, int v) {
    Ints pair = integers<Ints, uint8_t>(from + v * LANES % 16);
    return __builtin_convertvector(v * LANES < 16 ? pair & 15 : pair >> 4, Floats);
}
struct Q4_0 {  // GGUF: a scale, and 32 numbers of 4 bits, of which 8 is zero
    static constexpr int KIND = 4, GROUP = 32, BYTES = 18;
    static inline Floats unpack(const uint8_t* group, int v) {
        float scale = scale_at(group);
        return nibbles(group + 2, v) * scale - 8.0f * scale;  // exact: 15 bits at most
    }
};
struct Q4_1 {  // GGUF: a scale, a minimum, and 32 numbers of 4 bits
    static constexpr int KIND = 5, GROUP = 32, BYTES = 20;
    static inline Floats unpack(const uint8_t* group, int v) {
        return nibbles(group + 4, v) * scale_at(group) + scale_at(group + 2);
    }
};

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
// `size` numbers in a format of a cache; those after the last full group are moved by themselves.
template <class F>
static inline void narrow(const float* from, int64_t size, void* to) {
    constexpr int EACH = F::BYTES / F::GROUP;
    uint8_t* group = (uint8_t*)to;
    int64_t done = 0;
    for (; done + LANES <= size; done += LANES)
        F::pack(group + done * EACH, load<Floats>(from + done));
    if (done == size) return;
    float rest[LANES] = {};
    uint8_t packed[F::BYTES];
    memcpy(rest, from + done, (size - done) * 4);
    F::pack(packed, load<Floats>(rest));
    memcpy(group + done * EACH, packed, (size - done) * EACH);
}
