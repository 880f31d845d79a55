// What instructions of inline PTX do, for the C++ that yaie/emulator/ptx.py makes of them. A register
// is a uint64_t that holds the bits of its value.
#pragma once

#include <cmath>
#include <type_traits>

#include "../cuda_bf16.h"
#include "../cuda_fp16.h"
#include "../cuda_fp8.h"
#include "../cuda_pipeline.h"
#include "../cuda_runtime.h"

namespace emulator {
namespace ptx {

constexpr uint64_t undefined = 0xffffffffffffffffull;  // NaN as a float

template <class T>
EMULATOR_INLINE uint64_t bits(T value) {
    static_assert(sizeof(T) <= 8, "an operand of inline PTX has at most 8 bytes");
    return to_bits(value);
}
template <class T>
EMULATOR_INLINE T as(uint64_t held) {
    return from_bits<T>(held);
}
template <>
EMULATOR_INLINE bool as<bool>(uint64_t held) { return held != 0; }
template <class T>
EMULATOR_INLINE void put(T& place, uint64_t held) { memcpy((void*)&place, &held, sizeof(T)); }

EMULATOR_INLINE unsigned thread() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
EMULATOR_INLINE unsigned lane() { return thread() % 32; }

// ------------------------------------------------------------------------------ arithmetic

inline float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }
template <class T> T flushed(T x) { return x; }
inline float saturated(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }  // NaN becomes 0
template <class T> T saturated(T x) { return T(saturated((float)x)); }
template <class F> Pair<F> saturated(Pair<F> a) { return {saturated(a.x), saturated(a.y)}; }

using std::abs;
using std::fma;
using std::sqrt;
using ::max;
using ::min;
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
template <class T> T abs(T a) { return a < 0 ? T(-a) : a; }
template <class T> T rcp(T x) { return T(1) / x; }
template <class T> T copysign(T sign, T x) { return std::copysign(x, sign); }
template <class F> Small<F> min(Small<F> a, Small<F> b) { return __hmin(a, b); }
template <class F> Small<F> max(Small<F> a, Small<F> b) { return __hmax(a, b); }
template <class F> Small<F> abs(Small<F> a) { return __habs(a); }
template <class F> Small<F> fma(Small<F> a, Small<F> b, Small<F> c) { return __hfma(a, b, c); }
template <class F> Pair<F> min(Pair<F> a, Pair<F> b) { return __hmin2(a, b); }
template <class F> Pair<F> max(Pair<F> a, Pair<F> b) { return __hmax2(a, b); }
template <class F> Pair<F> abs(Pair<F> a) { return __habs2(a); }
template <class F> Pair<F> fma(Pair<F> a, Pair<F> b, Pair<F> c) { return __hfma2(a, b, c); }

// In float, of a number of any width or of a pair.
#define EMULATOR_FUNCTION(name, value)                                                        \
    template <class T> T name(T given) {                                                      \
        const float x = (float)given;                                                         \
        return T(value);                                                                      \
    }                                                                                         \
    template <class F> Pair<F> name(Pair<F> a) { return {name(a.x), name(a.y)}; }
EMULATOR_FUNCTION(ex2, exp2f(x))
EMULATOR_FUNCTION(lg2, log2f(x))
EMULATOR_FUNCTION(rsqrt, rsqrtf(x))
EMULATOR_FUNCTION(sin, sinf(x))
EMULATOR_FUNCTION(cos, cosf(x))
EMULATOR_FUNCTION(tanh, tanhf(x))
#undef EMULATOR_FUNCTION

// A shift by the width or more leaves nothing but the sign.
template <class T> T shl(T a, uint32_t count) { return count < sizeof(T) * 8 ? a << count : 0; }
template <class T> T shr(T a, uint32_t count) {
    if (count < sizeof(T) * 8) return a >> count;
    return a < 0 ? T(-1) : T(0);
}
template <class T> uint32_t popc(T a) { return __builtin_popcountll(a); }
template <class T> uint32_t clz(T a) {
    return a ? __builtin_clzll(a) - (64 - sizeof(T) * 8) : sizeof(T) * 8;
}
template <class T> uint32_t bfind(T a) {
    const auto shown = a < 0 ? ~a : a;
    return shown ? 63 - __builtin_clzll((std::make_unsigned_t<T>)shown) : ~0u;
}
using emulator::brev;
using emulator::prmt;
template <class T> T bfe(T a, uint32_t position, uint32_t length) {
    using Whole = std::make_unsigned_t<T>;
    position &= 255, length &= 255;
    const uint32_t width = sizeof(T) * 8;
    if (length == 0) return 0;
    const Whole mask = length < width ? ((Whole)1 << length) - 1 : ~(Whole)0;
    Whole field = (Whole)shr(a, position) & mask;
    const uint32_t last = position + length - 1 < width ? length - 1 : width - 1 - position;
    if (std::is_signed<T>::value && position < width && field >> last & 1) field |= ~mask;
    return (T)field;
}
template <class T> T bfi(T field, T into, uint32_t position, uint32_t length) {
    position &= 255, length &= 255;
    const T mask = shl(length < sizeof(T) * 8 ? ((T)1 << length) - 1 : ~(T)0, position);
    return (into & ~mask) | (shl(field, position) & mask);
}
inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (int i = 0; i < 32; ++i) {
        const uint32_t row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
        result |= (table >> row & 1) << i;
    }
    return result;
}
// Of two integers, in twice their width.
inline int64_t product(int32_t a, int32_t b) { return (int64_t)a * b; }
inline uint64_t product(uint32_t a, uint32_t b) { return (uint64_t)a * b; }
inline int32_t product(int16_t a, int16_t b) { return (int32_t)a * b; }
inline uint32_t product(uint16_t a, uint16_t b) { return (uint32_t)a * b; }
inline __int128 product(int64_t a, int64_t b) { return (__int128)a * b; }
inline unsigned __int128 product(uint64_t a, uint64_t b) { return (unsigned __int128)a * b; }

// ----------------------------------------------------------------------------- conversions

inline double rounded(double x, char how) {
    switch (how) {
        case 'z': return trunc(x);
        case 'm': return floor(x);
        case 'p': return ceil(x);
        default: return rint(x);
    }
}
// To an integer: out of range gives the nearest there is, NaN gives 0. Integers to integers wrap.
template <class To, class From>
std::enable_if_t<std::is_integral<To>::value, To> convert(From x, char how) {
    if (std::is_integral<From>::value) return (To)x;
    const double whole = rounded((double)x, how);
    if (whole != whole) return 0;
    const double least = (double)std::numeric_limits<To>::min();
    const double past = std::ldexp(1.0, std::numeric_limits<To>::digits);
    if (whole < least) return std::numeric_limits<To>::min();
    return whole >= past ? std::numeric_limits<To>::max() : (To)whole;
}
template <class To, class From>
std::enable_if_t<!std::is_integral<To>::value, To> convert(From x, char how) {
    const To nearest = To(x);
    if (how == 'n') return nearest;
    const double exact = (double)x, held = (double)nearest;
    const bool away = how == 'z' ? fabs(held) > fabs(exact) : how == 'm' ? held > exact : held < exact;
    if (!away) return nearest;
    return as<To>(bits(nearest) + (how == 'z' || !std::signbit(held) == (how == 'm') ? -1 : 1));
}
// Two floats in one register, the second in its lower half.
template <class T>
uint64_t pair(float high, float low, bool relu) {
    if (relu) high = high > 0 || high != high ? high : 0, low = low > 0 || low != low ? low : 0;
    return bits(T(low)) | bits(T(high)) << 16;
}
// Several values in one register of twice or four times their bits, the first lowest.
template <int each, class... Values>
uint64_t pack(Values... values) {
    uint64_t packed = 0;
    int shift = 0;
    ((packed |= (values & ((1ull << each) - 1)) << shift, shift += each), ...);
    return packed;
}
template <int each, class... Places>
EMULATOR_INLINE void unpack(uint64_t from, Places&... places) {
    ((places = from & ((1ull << each) - 1), from >>= each), ...);
}

// ---------------------------------------------------------------------------------- memory

EMULATOR_INLINE void* generic(uint64_t address) { return reinterpret_cast<void*>(address); }
EMULATOR_INLINE void* shared(uint64_t address) { return from_shared((uint32_t)address); }

template <int bytes> struct Words;
template <> struct Words<1> { using type = uint8_t; };
template <> struct Words<2> { using type = uint16_t; };
template <> struct Words<4> { using type = uint32_t; };
template <> struct Words<8> { using type = uint64_t; };
template <> struct Words<16> { using type = uint4; };

// One access of all elements together, as a GPU makes it.
template <int size, bool watched, bool is_signed, class... Places>
EMULATOR_INLINE void load(const void* address, Places&... places) {
    using Word = typename Words<size * sizeof...(places)>::type;
    unsigned char held[sizeof(Word)];
    if constexpr (watched && sizeof(Word) <= 8) {
        const Word word = *static_cast<const volatile Word*>(address);
        memcpy(held, &word, sizeof(Word));
    } else {
        const Word word = *static_cast<const Word*>(address);
        memcpy(held, &word, sizeof(Word));
    }
    const unsigned char* from = held;
    auto next = [&](uint64_t& place) {
        place = 0;
        memcpy(&place, from, size);
        if (is_signed && size < 8 && place >> (8 * size - 1) & 1) place |= ~0ull << 8 * size % 64;
        from += size;
    };
    (next(places), ...);
}
template <int size, bool watched, class... Values>
EMULATOR_INLINE void store(void* address, Values... values) {
    using Word = typename Words<size * sizeof...(values)>::type;
    unsigned char held[sizeof(Word)];
    unsigned char* to = held;
    ((memcpy(to, &values, size), to += size), ...);
    Word word;
    memcpy(&word, held, sizeof(Word));
    if constexpr (watched && sizeof(Word) <= 8) {
        *static_cast<volatile Word*>(address) = word;
    } else {
        *static_cast<Word*>(address) = word;
    }
}

// ----------------------------------------------------------------------------------- warps

// `clamp` holds the last lane in its lower bits, and which bits of a lane name its segment.
EMULATOR_INLINE uint64_t shuffle(Collective operation, uint64_t value, uint64_t parameter,
                                 uint64_t clamp, uint64_t mask, uint64_t& inside) {
    const int width = 32 - (int)(clamp >> 8 & 31), distance = (int)(parameter & 31);
    const int mine = (int)lane() % width;
    switch (operation) {
        case Collective::shuffle_up: inside = mine >= distance; break;
        case Collective::shuffle_down: inside = mine + distance < width; break;
        case Collective::shuffle_xor: inside = (mine ^ distance) < width; break;
        default: inside = true;
    }
    return emulator::shuffle(operation, (unsigned)mask, (unsigned)value, distance, width);
}

// Loads or stores 8 × 8 matrices of 16 bits, one for each register. Lane l names the address of row l % 8 of
// matrix l / 8 and has two elements of row l / 4, or transposed, of column l / 4.
template <bool transposed, class... Registers>
EMULATOR_INLINE void each_matrix(const void* row, bool stores, Registers&... registers) {
    const unsigned me = lane();
    int matrix = 0;
    emulator_gather((uint64_t)row, sizeof...(registers), transposed);
    auto next = [&](uint64_t& held) __attribute__((always_inline)) {
        auto of_row = [&](unsigned wanted) __attribute__((always_inline)) {
            return (uint16_t*)emulator_gathered(matrix * 8 + (int)wanted);
        };
        if (transposed) {
            uint16_t* low = of_row(me % 4 * 2) + me / 4;
            uint16_t* high = of_row(me % 4 * 2 + 1) + me / 4;
            if (stores) *low = (uint16_t)held, *high = (uint16_t)(held >> 16);
            else held = *low | (uint32_t)*high << 16;
        } else {
            uint32_t* both = (uint32_t*)of_row(me / 4) + me % 4;
            if (stores) *both = (uint32_t)held;
            else held = *both;
        }
        ++matrix;
    };
    (next(registers), ...);
}
template <bool transposed, class... Places>
EMULATOR_INLINE void ldmatrix(const void* row, Places&... places) {
    each_matrix<transposed>(row, false, places...);
}
template <bool transposed, class... Values>
EMULATOR_INLINE void stmatrix(void* row, Values... values) {
    each_matrix<transposed>(row, true, values...);
}

struct Tf32 {};
template <class T> constexpr Element element = Element::f32;
template <> constexpr Element element<__half> = Element::f16;
template <> constexpr Element element<__nv_bfloat16> = Element::bf16;
template <> constexpr Element element<Tf32> = Element::tf32;
template <> constexpr Element element<int8_t> = Element::s8;
template <> constexpr Element element<uint8_t> = Element::u8;
template <> constexpr Element element<__nv_fp8_e4m3> = Element::e4m3;
template <> constexpr Element element<__nv_fp8_e5m2> = Element::e5m2;
template <> constexpr Element element<int32_t> = Element::s32;

// Registers `first` and the next in one number; 0 for those that are not there.
template <size_t count>
EMULATOR_INLINE uint64_t two(const uint64_t (&from)[count], size_t first) {
    const uint64_t low = first < count ? (uint32_t)from[first] : 0;
    return low | (first + 1 < count ? from[first + 1] << 32 : 0);
}

// d = a b + c for tiles of 16 rows and 8 columns.
template <class A, class B, class C, size_t of_d, size_t of_a, size_t of_b, size_t of_c>
EMULATOR_INLINE void mma(uint64_t (&d)[of_d], const uint64_t (&a)[of_a], const uint64_t (&b)[of_b],
                         const uint64_t (&c)[of_c]) {
    static_assert(of_a == 2 * of_b && of_b <= 2 && of_c <= 4 && of_d == of_c, "no such mma.sync");
    const emulator_Registers made =
        emulator_multiply({element<A>, element<B>, element<C>, of_b}, two(a, 0), two(a, 2),
                          two(b, 0), two(c, 0), two(c, 2));
    for (size_t i = 0; i < of_d; ++i) {
        d[i] = (uint32_t)((i < 2 ? made.low : made.high) >> i % 2 * 32);
    }
}

}  // namespace ptx
}  // namespace emulator
