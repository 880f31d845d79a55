// Mathematical device functions that the C library does not have under CUDA's names.
#pragma once

#include <limits.h>
#include <math.h>
#include <string.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "warp.h"

// Macros, because the C library declares some of these names itself. The fast versions on a GPU are
// less accurate than these.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)
#define __powf(x, y) powf(x, y)

#define EMULATOR_MINMAX(T)                                                                    \
    inline T min(T a, T b) { return b < a ? b : a; }                                          \
    inline T max(T a, T b) { return a < b ? b : a; }
EMULATOR_MINMAX(int)
EMULATOR_MINMAX(unsigned int)
EMULATOR_MINMAX(long)
EMULATOR_MINMAX(unsigned long)
EMULATOR_MINMAX(long long)
EMULATOR_MINMAX(unsigned long long)
#undef EMULATOR_MINMAX
// As fminf and fmaxf: if one argument is NaN, the result is the other.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline unsigned int min(unsigned int a, int b) { return min(a, (unsigned int)b); }
inline unsigned int min(int a, unsigned int b) { return min((unsigned int)a, b); }
inline unsigned int max(unsigned int a, int b) { return max(a, (unsigned int)b); }
inline unsigned int max(int a, unsigned int b) { return max((unsigned int)a, b); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
inline float sinpif(float x) { return (float)sin(x * M_PI); }
inline float cospif(float x) { return (float)cos(x * M_PI); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

namespace emulator {
// A conversion to an integer, as on a GPU: what does not fit becomes the nearest integer. NaN becomes
// 0, but with 64 bits on either side it becomes 1 << (bits - 1). The rewriter writes `(int)x` so.
template <class To, class From>
constexpr EMULATOR_INLINE To cast(From x) {
    if constexpr (std::is_floating_point<From>::value) {
        using Narrow = std::conditional_t<std::is_signed<To>::value, int, unsigned int>;
        using Wide = std::conditional_t<sizeof(To) < 4, Narrow, To>;
        constexpr int bits = 8 * sizeof(Wide), value_bits = bits - std::is_signed<To>::value;
        constexpr Wide least = std::numeric_limits<Wide>::min();
        if (x != x) return (To)(sizeof(From) + sizeof(Wide) > 8 ? (Wide)(1ull << (bits - 1)) : 0);
        if (x < (From)least) return (To)least;
        if (x >= 2 * (From)(1ull << (value_bits - 1))) return (To)std::numeric_limits<Wide>::max();
        return (To)(Wide)x;
    } else {
        return (To)x;
    }
}
}  // namespace emulator

#define EMULATOR_CONVERT(name, To, From)                                                      \
    inline To name##_rn(From x) { return emulator::cast<To>(std::nearbyint(x)); }             \
    inline To name##_rz(From x) { return emulator::cast<To>(x); }                             \
    inline To name##_rd(From x) { return emulator::cast<To>(std::floor(x)); }                 \
    inline To name##_ru(From x) { return emulator::cast<To>(std::ceil(x)); }
EMULATOR_CONVERT(__float2int, int, float)
EMULATOR_CONVERT(__float2uint, unsigned int, float)
EMULATOR_CONVERT(__float2ll, long long, float)
EMULATOR_CONVERT(__float2ull, unsigned long long, float)
EMULATOR_CONVERT(__double2int, int, double)
EMULATOR_CONVERT(__double2uint, unsigned int, double)
EMULATOR_CONVERT(__double2ll, long long, double)
EMULATOR_CONVERT(__double2ull, unsigned long long, double)
#undef EMULATOR_CONVERT
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned int x) { return (float)x; }

#define EMULATOR_BIT_CAST(name, To, From)                                                     \
    inline To name(From from) {                                                               \
        To to;                                                                                \
        memcpy(&to, &from, sizeof(to));                                                       \
        return to;                                                                            \
    }
EMULATOR_BIT_CAST(__float_as_int, int, float)
EMULATOR_BIT_CAST(__float_as_uint, unsigned int, float)
EMULATOR_BIT_CAST(__int_as_float, float, int)
EMULATOR_BIT_CAST(__uint_as_float, float, unsigned int)
EMULATOR_BIT_CAST(__double_as_longlong, long long, double)
EMULATOR_BIT_CAST(__longlong_as_double, double, long long)
#undef EMULATOR_BIT_CAST

inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
namespace emulator {
template <class T> T brev(T a) {  // its bits in reverse
    T turned = 0;
    for (unsigned i = 0; i < sizeof(T) * 8; ++i) turned |= (a >> i & 1) << (sizeof(T) * 8 - 1 - i);
    return turned;
}
// Bytes of a and b, each chosen by four bits.
inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        const uint32_t choice = selector >> 4 * i & 15;
        uint32_t byte = (uint32_t)((((uint64_t)b << 32) | a) >> 8 * (choice & 7)) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0;  // the sign alone
        result |= byte << 8 * i;
    }
    return result;
}
}  // namespace emulator
inline unsigned int __brev(unsigned int x) { return emulator::brev(x); }
inline unsigned int __byte_perm(unsigned int a, unsigned int b, unsigned int selector) {
    return emulator::prmt(a, b, selector & 0x7777u);
}
inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
inline unsigned int __umulhi(unsigned int a, unsigned int b) {
    return (unsigned int)(((unsigned long long)a * b) >> 32);
}
inline int __mul24(int a, int b) { return a * b; }
inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
    return (unsigned int)(((((unsigned long long)high << 32) | low) << (shift & 31u)) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
    return (unsigned int)((((unsigned long long)high << 32) | low) >> (shift & 31u));
}
// c plus the dot product of four signed bytes.
inline int __dp4a(int a, int b, int c) {
    for (int shift = 0; shift < 32; shift += 8) {
        c += (int)(signed char)(a >> shift) * (int)(signed char)(b >> shift);
    }
    return c;
}
