// The bits of small floating-point formats, for kernels and for the runtime.
#pragma once

#include <math.h>
#include <string.h>

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

// A sign bit, `exponent` bits and `fraction` bits. E4M3 has no infinity, and one NaN per sign.
template <int exponent, int fraction, bool has_infinity>
struct EightBits {
    static constexpr int bias = (1 << (exponent - 1)) - 1, dropped = 23 - fraction;
    static constexpr unsigned char infinity = ((1 << exponent) - 1) << fraction;
    static constexpr unsigned char largest = has_infinity ? infinity - 1 : 0x7e, nan = 0x7f;

    static unsigned char encode(float value, bool saturate) {
        unsigned int bits = float_bits(value), sign = (bits >> 24) & 0x80u;
        bits &= 0x7fffffffu;
        if (value != value) return (unsigned char)(sign | nan);
        if (bits < (unsigned int)(128 - bias) << 23) {  // subnormal: a multiple of the smallest
            const float units = bits_float(bits) * (float)(1 << (bias - 1 + fraction));
            return (unsigned char)(sign | (unsigned int)nearbyintf(units));
        }
        bits += (1u << (dropped - 1)) - 1 + ((bits >> dropped) & 1u);
        bits = (bits - ((unsigned int)(127 - bias) << 23)) >> dropped;
        if (bits > largest) bits = saturate ? largest : has_infinity ? infinity : nan;
        return (unsigned char)(sign | bits);
    }
    static float decode(unsigned char code) {
        const unsigned int sign = (code & 0x80u) << 24, magnitude = code & 0x7fu;
        if (has_infinity ? magnitude > infinity : magnitude == nan) return bits_float(0x7fffffffu);
        if (magnitude == infinity && has_infinity) return bits_float(sign | 0x7f800000u);
        if (magnitude >> fraction == 0) {
            const float value = (float)magnitude / (float)(1 << (bias - 1 + fraction));
            return sign ? -value : value;
        }
        return bits_float(sign | ((magnitude << dropped) + ((unsigned int)(127 - bias) << 23)));
    }
};
using E4M3 = EightBits<4, 3, false>;
using E5M2 = EightBits<5, 2, true>;

}  // namespace emulator
