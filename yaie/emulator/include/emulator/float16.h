// Sixteen-bit floating point: arithmetic in float, rounded to nearest even after each operation,
// which gives the same bits as the GPU's own 16-bit instructions.
#pragma once

#include <type_traits>

#include "formats.h"
#include "math.h"
#include "vector_types.h"

namespace emulator {

// An operator of one number or of a pair, the assignment that goes with it, and the function.
#define EMULATOR_OPERATOR(T, sign, name, result)                                              \
    friend T operator sign(T a, T b) { return result; }                                       \
    friend T& operator sign##=(T& a, T b) { return a = a sign b; }                            \
    friend T name(T a, T b) { return a sign b; }
// Functions of one number, as hexp and h2exp.
#define EMULATOR_FUNCTIONS(each)                                                              \
    each(exp, expf(x)) each(exp2, exp2f(x)) each(log, logf(x)) each(log2, log2f(x))           \
    each(sqrt, sqrtf(x)) each(rsqrt, 1.0f / sqrtf(x)) each(rcp, 1.0f / x) each(sin, sinf(x))  \
    each(cos, cosf(x)) each(floor, floorf(x)) each(ceil, ceilf(x)) each(rint, rintf(x))

template <class Format>
struct Pair;

template <class Format>
struct Small {
    unsigned short bits;

    Small() = default;
    Small(float value) : bits(Format::encode(value)) {}
    Small(double value) : bits(Format::encode(to_odd(value))) {}
    Small(int value) : Small((double)value) {}
    Small(unsigned int value) : Small((double)value) {}
    operator float() const { return Format::decode(bits); }

    static Small from_bits(unsigned short bits) {
        Small value;
        value.bits = bits;
        return value;
    }
    static Small fused(Small a, Small b, Small c) {
        return Small((double)(float)a * (double)(float)b + (double)(float)c);
    }

    EMULATOR_OPERATOR(Small, +, __hadd, (float)a + (float)b)
    EMULATOR_OPERATOR(Small, -, __hsub, (float)a - (float)b)
    EMULATOR_OPERATOR(Small, *, __hmul, (float)a * (float)b)
    EMULATOR_OPERATOR(Small, /, __hdiv, (float)a / (float)b)
    friend Small operator-(Small a) { return from_bits((unsigned short)(a.bits ^ 0x8000u)); }
#define EMULATOR_COMPARE(sign, name)                                                          \
    friend bool operator sign(Small a, Small b) { return (float)a sign (float)b; }            \
    friend bool name(Small a, Small b) { return a sign b; }
    EMULATOR_COMPARE(==, __heq)
    EMULATOR_COMPARE(!=, __hne)
    EMULATOR_COMPARE(<, __hlt)
    EMULATOR_COMPARE(<=, __hle)
    EMULATOR_COMPARE(>, __hgt)
    EMULATOR_COMPARE(>=, __hge)
#undef EMULATOR_COMPARE

    friend Small __hfma(Small a, Small b, Small c) { return fused(a, b, c); }
    friend Small __hneg(Small a) { return -a; }
    friend Small __habs(Small a) { return from_bits(a.bits & 0x7fffu); }
    friend Small __hmax(Small a, Small b) { return Small(fmaxf(a, b)); }
    friend Small __hmin(Small a, Small b) { return Small(fminf(a, b)); }
    friend Small __hmax_nan(Small a, Small b) { return a != a ? a : b != b ? b : __hmax(a, b); }
    friend Small __hmin_nan(Small a, Small b) { return a != a ? a : b != b ? b : __hmin(a, b); }
    friend bool __hisnan(Small a) { return (float)a != (float)a; }
    friend int __hisinf(Small a) { return isinf((float)a) ? ((float)a < 0 ? -1 : 1) : 0; }
#define EMULATOR_FUNCTION(name, value)                                                        \
    friend Small h##name(Small a) {                                                           \
        const float x = a;                                                                    \
        return Small(value);                                                                  \
    }
    EMULATOR_FUNCTIONS(EMULATOR_FUNCTION)
#undef EMULATOR_FUNCTION
};

template <class Format>
struct alignas(4) Pair {
    using S = Small<Format>;
    S x, y;

    Pair() = default;
    Pair(S x, S y) : x(x), y(y) {}

    EMULATOR_OPERATOR(Pair, +, __hadd2, Pair(a.x + b.x, a.y + b.y))
    EMULATOR_OPERATOR(Pair, -, __hsub2, Pair(a.x - b.x, a.y - b.y))
    EMULATOR_OPERATOR(Pair, *, __hmul2, Pair(a.x * b.x, a.y * b.y))
    EMULATOR_OPERATOR(Pair, /, __h2div, Pair(a.x / b.x, a.y / b.y))
    friend Pair operator-(Pair a) { return {-a.x, -a.y}; }
    friend bool operator==(Pair a, Pair b) { return a.x == b.x && a.y == b.y; }

    friend Pair __hfma2(Pair a, Pair b, Pair c) {
        return {S::fused(a.x, b.x, c.x), S::fused(a.y, b.y, c.y)};
    }
    friend Pair __hneg2(Pair a) { return -a; }
    friend Pair __habs2(Pair a) { return {__habs(a.x), __habs(a.y)}; }
#define EMULATOR_EACH(name, of)                                                               \
    friend Pair name(Pair a, Pair b) { return {of(a.x, b.x), of(a.y, b.y)}; }
    EMULATOR_EACH(__hmax2, __hmax)
    EMULATOR_EACH(__hmin2, __hmin)
    EMULATOR_EACH(__hmax2_nan, __hmax_nan)
    EMULATOR_EACH(__hmin2_nan, __hmin_nan)
#undef EMULATOR_EACH
#define EMULATOR_FUNCTION(name, value)                                                        \
    friend Pair h2##name(Pair a) { return {h##name(a.x), h##name(a.y)}; }
    EMULATOR_FUNCTIONS(EMULATOR_FUNCTION)
#undef EMULATOR_FUNCTION
    friend S __low2half(Pair a) { return a.x; }
    friend S __high2half(Pair a) { return a.y; }
    friend S __low2bfloat16(Pair a) { return a.x; }
    friend S __high2bfloat16(Pair a) { return a.y; }
    friend float __low2float(Pair a) { return a.x; }
    friend float __high2float(Pair a) { return a.y; }
    friend Pair __lowhigh2highlow(Pair a) { return {a.y, a.x}; }
    friend Pair __low2half2(Pair a) { return {a.x, a.x}; }
    friend Pair __high2half2(Pair a) { return {a.y, a.y}; }
    friend Pair __lows2half2(Pair a, Pair b) { return {a.x, b.x}; }
    friend Pair __highs2half2(Pair a, Pair b) { return {a.y, b.y}; }
    friend Pair __low2bfloat162(Pair a) { return {a.x, a.x}; }
    friend Pair __high2bfloat162(Pair a) { return {a.y, a.y}; }
};

template <class To, class Format>
EMULATOR_INLINE To cast(Small<Format> x) {
    return cast<To>((float)x);
}

// CUDA's half converts to several types of numbers, so in `x += half`, where x is another number,
// the compiler finds the call ambiguous. Here two operators fit equally well, to the same effect.
#define EMULATOR_AMBIGUOUS(sign)                                                              \
    template <class A, class F, std::enable_if_t<std::is_arithmetic<A>::value, int> = 0>      \
    A& operator sign(A&, Small<F>);                                                           \
    template <class A, class F, std::enable_if_t<std::is_arithmetic<A>::value, long> = 0>     \
    A& operator sign(A&, Small<F>);
EMULATOR_AMBIGUOUS(+=)
EMULATOR_AMBIGUOUS(-=)
EMULATOR_AMBIGUOUS(*=)
EMULATOR_AMBIGUOUS(/=)
#undef EMULATOR_AMBIGUOUS

}  // namespace emulator
#undef EMULATOR_OPERATOR
#undef EMULATOR_FUNCTIONS

// The functions of one type whose names hold its name.
#define EMULATOR_SMALL(T, name)                                                               \
    inline T __float2##name(float x) { return T(x); }                                         \
    inline T __float2##name##_rn(float x) { return T(x); }                                    \
    inline T __double2##name(double x) { return T(x); }                                       \
    inline T __int2##name##_rn(int x) { return T((double)x); }                                \
    inline float __##name##2float(T x) { return x; }                                          \
    inline int __##name##2int_rn(T x) { return __float2int_rn(x); }                           \
    inline int __##name##2int_rz(T x) { return __float2int_rz(x); }                           \
    inline T __ushort_as_##name(unsigned short bits) { return T::from_bits(bits); }           \
    inline T __short_as_##name(short bits) { return T::from_bits((unsigned short)bits); }     \
    inline unsigned short __##name##_as_ushort(T x) { return x.bits; }                        \
    inline short __##name##_as_short(T x) { return (short)x.bits; }                           \
    inline T##2 make_##name##2(T x, T y) { return {x, y}; }                                   \
    inline T##2 __halves2##name##2(T x, T y) { return {x, y}; }                               \
    inline T##2 __##name##2##name##2(T x) { return {x, x}; }                                  \
    inline T##2 __float2##name##2_rn(float x) { return {T(x), T(x)}; }                        \
    inline T##2 __floats2##name##2_rn(float x, float y) { return {T(x), T(y)}; }              \
    inline T##2 __float22##name##2_rn(float2 v) { return {T(v.x), T(v.y)}; }                  \
    inline float2 __##name##22float2(T##2 v) { return {v.x, v.y}; }
