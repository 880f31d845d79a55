// Sixteen-bit floating point: arithmetic in float, rounded to nearest even after each operation,
// which gives the same bits as the GPU's own 16-bit instructions.
#pragma once

#include <math.h>
#include <string.h>

#include "math.h"
#include "vector_types.h"

namespace emulator {

inline unsigned int float_bits(float value) {
    unsigned int bits;
    memcpy(&bits, &value, 4);
    return bits;
}
inline float bits_float(unsigned int bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// To float, rounded to odd, so that a second rounding to 16 bits gives the correct result.
inline float to_odd(double value) {
    float nearest = (float)value;
    if ((double)nearest == value || value != value || isinf(nearest)) return nearest;
    unsigned int bits = float_bits(nearest);
    if (fabs((double)nearest) > fabs(value)) --bits;
    return bits_float(bits | 1u);
}

struct HalfFormat {  // IEEE binary16: 5 bits of exponent, 10 of fraction
    static unsigned short encode(float value) {
        unsigned int bits = float_bits(value), sign = (bits >> 16) & 0x8000u;
        bits &= 0x7fffffffu;
        if (bits > 0x7f800000u) return 0x7fff;
        if (bits >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);  // 65520 and above
        if (bits < 0x38800000u) {  // below 2^-14: the fraction counts units of 2^-24
            float units = bits_float(bits) * 16777216.0f;
            return (unsigned short)(sign | (unsigned int)nearbyintf(units));
        }
        bits += 0xfffu + ((bits >> 13) & 1u);
        return (unsigned short)(sign | ((bits - 0x38000000u) >> 13));
    }
    static float decode(unsigned short half) {
        unsigned int sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31u;
        unsigned int fraction = half & 0x3ffu;
        if (exponent == 31) return bits_float(sign | 0x7f800000u | (fraction << 13));
        if (exponent == 0) {
            float value = (float)fraction * (1.0f / 16777216.0f);
            return sign ? -value : value;
        }
        return bits_float(sign | ((exponent + 112) << 23) | (fraction << 13));
    }
};

struct BrainFormat {  // bfloat16: the upper half of a float
    static unsigned short encode(float value) {
        unsigned int bits = float_bits(value);
        if (value != value) return 0x7fff;
        return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
    static float decode(unsigned short brain) { return bits_float((unsigned int)brain << 16); }
};

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

    friend Small operator+(Small a, Small b) { return Small((float)a + (float)b); }
    friend Small operator-(Small a, Small b) { return Small((float)a - (float)b); }
    friend Small operator*(Small a, Small b) { return Small((float)a * (float)b); }
    friend Small operator/(Small a, Small b) { return Small((float)a / (float)b); }
    friend Small operator-(Small a) { return from_bits((unsigned short)(a.bits ^ 0x8000u)); }
    friend Small& operator+=(Small& a, Small b) { return a = a + b; }
    friend Small& operator-=(Small& a, Small b) { return a = a - b; }
    friend Small& operator*=(Small& a, Small b) { return a = a * b; }
    friend Small& operator/=(Small& a, Small b) { return a = a / b; }
    friend bool operator==(Small a, Small b) { return (float)a == (float)b; }
    friend bool operator!=(Small a, Small b) { return (float)a != (float)b; }
    friend bool operator<(Small a, Small b) { return (float)a < (float)b; }
    friend bool operator<=(Small a, Small b) { return (float)a <= (float)b; }
    friend bool operator>(Small a, Small b) { return (float)a > (float)b; }
    friend bool operator>=(Small a, Small b) { return (float)a >= (float)b; }

    friend Small __hadd(Small a, Small b) { return a + b; }
    friend Small __hsub(Small a, Small b) { return a - b; }
    friend Small __hmul(Small a, Small b) { return a * b; }
    friend Small __hdiv(Small a, Small b) { return a / b; }
    friend Small __hfma(Small a, Small b, Small c) { return fused(a, b, c); }
    friend Small __hneg(Small a) { return -a; }
    friend Small __habs(Small a) { return from_bits(a.bits & 0x7fffu); }
    friend Small __hmax(Small a, Small b) { return Small(fmaxf(a, b)); }
    friend Small __hmin(Small a, Small b) { return Small(fminf(a, b)); }
    friend Small __hmax_nan(Small a, Small b) { return a != a ? a : b != b ? b : __hmax(a, b); }
    friend Small __hmin_nan(Small a, Small b) { return a != a ? a : b != b ? b : __hmin(a, b); }
    friend bool __heq(Small a, Small b) { return a == b; }
    friend bool __hne(Small a, Small b) { return a != b; }
    friend bool __hlt(Small a, Small b) { return a < b; }
    friend bool __hle(Small a, Small b) { return a <= b; }
    friend bool __hgt(Small a, Small b) { return a > b; }
    friend bool __hge(Small a, Small b) { return a >= b; }
    friend bool __hisnan(Small a) { return (float)a != (float)a; }
    friend int __hisinf(Small a) { return isinf((float)a) ? ((float)a < 0 ? -1 : 1) : 0; }
    friend Small hexp(Small a) { return Small(expf(a)); }
    friend Small hexp2(Small a) { return Small(exp2f(a)); }
    friend Small hlog(Small a) { return Small(logf(a)); }
    friend Small hlog2(Small a) { return Small(log2f(a)); }
    friend Small hsqrt(Small a) { return Small(sqrtf(a)); }
    friend Small hrsqrt(Small a) { return Small(1.0f / sqrtf(a)); }
    friend Small hrcp(Small a) { return Small(1.0f / (float)a); }
    friend Small hsin(Small a) { return Small(sinf(a)); }
    friend Small hcos(Small a) { return Small(cosf(a)); }
    friend Small hfloor(Small a) { return Small(floorf(a)); }
    friend Small hceil(Small a) { return Small(ceilf(a)); }
    friend Small hrint(Small a) { return Small(rintf(a)); }
};

template <class Format>
struct alignas(4) Pair {
    using S = Small<Format>;
    S x, y;

    Pair() = default;
    Pair(S x, S y) : x(x), y(y) {}

    friend Pair operator+(Pair a, Pair b) { return {a.x + b.x, a.y + b.y}; }
    friend Pair operator-(Pair a, Pair b) { return {a.x - b.x, a.y - b.y}; }
    friend Pair operator*(Pair a, Pair b) { return {a.x * b.x, a.y * b.y}; }
    friend Pair operator/(Pair a, Pair b) { return {a.x / b.x, a.y / b.y}; }
    friend Pair& operator+=(Pair& a, Pair b) { return a = a + b; }
    friend Pair& operator-=(Pair& a, Pair b) { return a = a - b; }
    friend Pair& operator*=(Pair& a, Pair b) { return a = a * b; }
    friend Pair& operator/=(Pair& a, Pair b) { return a = a / b; }
    friend Pair operator-(Pair a) { return {-a.x, -a.y}; }
    friend bool operator==(Pair a, Pair b) { return a.x == b.x && a.y == b.y; }

    friend Pair __hadd2(Pair a, Pair b) { return a + b; }
    friend Pair __hsub2(Pair a, Pair b) { return a - b; }
    friend Pair __hmul2(Pair a, Pair b) { return a * b; }
    friend Pair __h2div(Pair a, Pair b) { return a / b; }
    friend Pair __hfma2(Pair a, Pair b, Pair c) {
        return {S::fused(a.x, b.x, c.x), S::fused(a.y, b.y, c.y)};
    }
    friend Pair __hneg2(Pair a) { return {-a.x, -a.y}; }
    friend Pair __habs2(Pair a) { return {__habs(a.x), __habs(a.y)}; }
    friend Pair __hmax2(Pair a, Pair b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
    friend Pair __hmin2(Pair a, Pair b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
    friend Pair __hmax2_nan(Pair a, Pair b) {
        return {__hmax_nan(a.x, b.x), __hmax_nan(a.y, b.y)};
    }
    friend Pair __hmin2_nan(Pair a, Pair b) {
        return {__hmin_nan(a.x, b.x), __hmin_nan(a.y, b.y)};
    }
    friend Pair h2exp(Pair a) { return {hexp(a.x), hexp(a.y)}; }
    friend Pair h2exp2(Pair a) { return {hexp2(a.x), hexp2(a.y)}; }
    friend Pair h2log(Pair a) { return {hlog(a.x), hlog(a.y)}; }
    friend Pair h2log2(Pair a) { return {hlog2(a.x), hlog2(a.y)}; }
    friend Pair h2sqrt(Pair a) { return {hsqrt(a.x), hsqrt(a.y)}; }
    friend Pair h2rsqrt(Pair a) { return {hrsqrt(a.x), hrsqrt(a.y)}; }
    friend Pair h2rcp(Pair a) { return {hrcp(a.x), hrcp(a.y)}; }
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

}  // namespace emulator
