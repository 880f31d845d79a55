// Replaces NVIDIA's cuda_fp8.h: eight-bit floating point, for storage and not for arithmetic.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

namespace emulator {

template <class Format>
struct Eight {
    __nv_fp8_storage_t __x;

    Eight() = default;
    explicit Eight(float value) : __x(Format::encode(value, true)) {}
    explicit Eight(double value) : Eight(to_odd(value)) {}
    explicit Eight(__half value) : Eight((float)value) {}
    explicit Eight(__nv_bfloat16 value) : Eight((float)value) {}
    explicit operator float() const { return Format::decode(__x); }
    explicit operator double() const { return Format::decode(__x); }
    explicit operator __half() const { return __half(Format::decode(__x)); }
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(Format::decode(__x)); }
};

template <class Format>
struct alignas(2) EightPair {
    __nv_fp8x2_storage_t __x;

    EightPair() = default;
    explicit EightPair(float2 v)
        : __x((unsigned short)(Format::encode(v.x, true) | Format::encode(v.y, true) << 8)) {}
    explicit EightPair(__half2 v) : EightPair(float2{v.x, v.y}) {}
    explicit EightPair(__nv_bfloat162 v) : EightPair(float2{v.x, v.y}) {}
    explicit operator float2() const {
        return {Format::decode((unsigned char)__x), Format::decode((unsigned char)(__x >> 8))};
    }
    explicit operator __half2() const {
        const float2 v = (float2)*this;
        return {__half(v.x), __half(v.y)};
    }
};

template <class Format>
struct alignas(4) EightFour {
    __nv_fp8x4_storage_t __x;

    EightFour() = default;
    explicit EightFour(float4 v)
        : __x(EightPair<Format>(float2{v.x, v.y}).__x |
              (unsigned int)EightPair<Format>(float2{v.z, v.w}).__x << 16) {}
    explicit operator float4() const {
        EightPair<Format> low, high;
        low.__x = (unsigned short)__x, high.__x = (unsigned short)(__x >> 16);
        const float2 a = (float2)low, b = (float2)high;
        return {a.x, a.y, b.x, b.y};
    }
};

}  // namespace emulator

using __nv_fp8_e4m3 = emulator::Eight<emulator::E4M3>;
using __nv_fp8_e5m2 = emulator::Eight<emulator::E5M2>;
using __nv_fp8x2_e4m3 = emulator::EightPair<emulator::E4M3>;
using __nv_fp8x2_e5m2 = emulator::EightPair<emulator::E5M2>;
using __nv_fp8x4_e4m3 = emulator::EightFour<emulator::E4M3>;
using __nv_fp8x4_e5m2 = emulator::EightFour<emulator::E5M2>;

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate,
                                                __nv_fp8_interpretation_t format) {
    const bool finite = saturate == __NV_SATFINITE;
    return format == __NV_E4M3 ? emulator::E4M3::encode(x, finite)
                               : emulator::E5M2::encode(x, finite);
}
inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate,
                                                 __nv_fp8_interpretation_t format) {
    return __nv_cvt_float_to_fp8(emulator::to_odd(x), saturate, format);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t saturate,
                                                     __nv_fp8_interpretation_t format) {
    return (__nv_fp8x2_storage_t)(__nv_cvt_float_to_fp8(v.x, saturate, format) |
                                  __nv_cvt_float_to_fp8(v.y, saturate, format) << 8);
}
