// Shared by all kernels: 16-byte vectors, conversions to and from float, and the sum over a warp.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

__host__ __device__ constexpr int ceil_div(int a, int b) { return a / b + (a % b != 0); }

// ---------------------------------------------------------------------------- conversions

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// from_float<T>(x) rounds x to the nearest T.
template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) { return x; }
template <>
__device__ __forceinline__ __half from_float<__half>(float x) { return __float2half(x); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16(x);
}

// -------------------------------------------------------------------------- 16-byte vectors

// The most that one load or store of a thread can move: 4 floats, or 8 elements of 16 bits.
template <typename T>
struct alignas(16) Vec {
    static constexpr int SIZE = 16 / sizeof(T);
    T items[SIZE];
    __device__ T& operator[](int i) { return items[i]; }
    __device__ const T& operator[](int i) const { return items[i]; }
};

// The address must be a multiple of 16. The bytes travel as a uint4, which takes one instruction,
// where the compiler would split a structure of __half2 into several.
template <typename T>
__device__ __forceinline__ Vec<T> load16(const T* from) {
    uint4 bits = *reinterpret_cast<const uint4*>(from);
    return reinterpret_cast<const Vec<T>&>(bits);
}
template <typename T>
__device__ __forceinline__ void store16(T* to, const Vec<T>& vec) {
    *reinterpret_cast<uint4*>(to) = reinterpret_cast<const uint4&>(vec);
}

// Whether load16 and store16 may be used at every one of these addresses.
template <typename... Pointers>
bool aligned16(Pointers... pointers) {
    return ((reinterpret_cast<uintptr_t>(pointers) | ...) % 16) == 0;
}

// -------------------------------------------------------------------------------- warps

// The sum of `value` over the warp, returned in every lane. All 32 lanes must call it.
__device__ __forceinline__ float warp_sum(float value) {
    for (int step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, step);
    return value;
}
