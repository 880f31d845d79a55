// As rows.cuh, over tiles of keys and values that are 8-bit floats (e4m3) in shared memory.
//
// The tensor cores multiply 16-bit floats, and every e4m3 is a float16: so codes become float16 in
// registers, two by one instruction from sm_89 on, right before they are multiplied. Queries in
// bfloat16 may lie outside of float16's range: each row is first multiplied by a power of two, which
// brings its largest element to between 1 and 2, and its scores are multiplied by the inverse.
//
// A lane loads 16 codes of a key, which are successive dimensions, where mma.sync wants two and two
// that lie 8 apart. The order in which a product is summed does not matter: the queries are loaded in
// the same order. Two adjacent codes of a value belong to two columns of the product, so even and odd
// dimensions are multiplied apart.
#pragma once

#include <cuda_fp8.h>
#include <type_traits>

#include "paged/rows.cuh"

constexpr int CODES = 16;  // in 16 bytes

// The place of a chunk of a row in a tile, in bytes. The first or the last 4 chunks of two successive
// rows, and the same chunk of 8 successive rows, lie in different banks.
template <int HEAD_DIM>
__device__ __forceinline__ int codes_at(int row, int chunk) {
    constexpr int CHUNKS = HEAD_DIM / CODES;
    int moved = row / 2 % 4 ^ (CHUNKS == 8 ? row % 2 * 4 : 0);
    return (row * CHUNKS + (chunk ^ moved)) * CODES;
}

// The two codes in the lower half of a word as float16, exactly.
__device__ __forceinline__ uint32_t widen(uint32_t codes) {
    __nv_fp8x2_e4m3 pair;
    pair.__x = (__nv_fp8x2_storage_t)codes;
    __half2 both = __half2(pair);
    return reinterpret_cast<uint32_t&>(both);
}

template <typename T, int HEAD_DIM>
struct RowsFp8 : Rows<__half, HEAD_DIM> {
    float unit[2];  // what the scores of the two rows are multiplied by

    template <typename RowAt>
    __device__ __forceinline__ void begin(RowAt row_at) {
        int group = threadIdx.x % WARP / 4, quarter = threadIdx.x % 4;
#pragma unroll
        for (int below = 0; below < 2; ++below) {
            const T* row = row_at(group + below * 8);
            uint32_t pairs[HEAD_DIM / 8];
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 8; ++i) {  // 4 dimensions per step, 16 of each 64
                int dim = i / 8 * 64 + quarter * CODES + i % 8 * 2;
                pairs[i] = row ? *reinterpret_cast<const uint32_t*>(row + dim) : 0;
            }
            unit[below] = 1.0f;
            if constexpr (!std::is_same<T, __half>::value) unit[below] = into_range(pairs);
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 8; ++i) this->q[i / 2][i % 2 * 2 + below] = pairs[i];
            this->maximum[below] = LOWEST;
            this->total[below] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) this->out[i][j] = 0.0f;
    }

    // Turn a row's pairs of bfloat16 into float16, times a power of two. Returns the inverse of it.
    __device__ __forceinline__ float into_range(uint32_t (&pairs)[HEAD_DIM / 8]) {
        float largest = 0.0f;
        auto low = [](uint32_t pair) { return __uint_as_float(pair << 16); };
        auto high = [](uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); };
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i)
            largest = fmaxf(largest, fmaxf(fabsf(low(pairs[i])), fabsf(high(pairs[i]))));
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
        int exponent = min(max((int)(__float_as_uint(largest) >> 23) - 127, -100), 100);
        float factor = __uint_as_float((uint32_t)(127 - exponent) << 23);
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i)
            pairs[i] = pack2<__half>(low(pairs[i]) * factor, high(pairs[i]) * factor);
        return __uint_as_float((uint32_t)(127 + exponent) << 23);
    }

    // As Rows::attend.
    template <int TILE>
    __device__ __forceinline__ void attend(const __nv_fp8_e4m3* keys, const __nv_fp8_e4m3* values,
                                           int count, float scale, bool lower = true) {
        int lane = threadIdx.x % WARP;
        float scores[TILE / 8][4] = {};
#pragma unroll
        for (int i = 0; i < TILE / 8; ++i)
#pragma unroll
            for (int span = 0; span < HEAD_DIM / 64; ++span) {
                int place = codes_at<HEAD_DIM>(i * 8 + lane / 4, span * 4 + lane % 4);
                uint4 codes = *reinterpret_cast<const uint4*>(keys + place);
                const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    mma_16x8x16<__half>(scores[i], this->q[span * 4 + j], widen(words[j]),
                                        widen(words[j] >> 16));
            }
        if (count < TILE) {
#pragma unroll
            for (int i = 0; i < TILE / 8; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (i * 8 + lane % 4 * 2 + j % 2 >= count) scores[i][j] = -INFINITY;
        }
        this->template soften<TILE>(scores, 0, scale * unit[0]);
        if (lower) this->template soften<TILE>(scores, 1, scale * unit[1]);
#pragma unroll
        for (int i = 0; i < TILE / 16; ++i) {
            uint32_t weights[4];
#pragma unroll
            for (int j = 0; j < 4; ++j)
                weights[j] = pack2<__half>(scores[i * 2 + j / 2][j % 2 * 2],
                                           scores[i * 2 + j / 2][j % 2 * 2 + 1]);
#pragma unroll
            for (int j = 0; j < HEAD_DIM / 32; ++j) {
                uint32_t v[4];  // two dimensions of two keys each
                ldmatrix_x4_trans(
                    v, values + codes_at<HEAD_DIM>(i * 16 + lane % 16, j * 2 + lane / 16));
#pragma unroll
                for (int k = 0; k < 4; ++k) v[k] = __byte_perm(v[k], 0, 0x3120);
#pragma unroll
                for (int odd = 0; odd < 4; ++odd) {
                    int first = odd / 2 * 2, shift = odd % 2 * 16;
                    mma_16x8x16<__half>(this->out[j * 4 + odd], weights, widen(v[first] >> shift),
                                        widen(v[first + 1] >> shift));
                }
            }
        }
    }

    // As Rows::store: `out` holds dimensions 4 × (lane % 4) to 3 more of each 16.
    template <typename To>
    __device__ __forceinline__ void store(To* row, int below) const {
#pragma unroll
        for (int i = 0; i < HEAD_DIM / CODES; ++i) {
            const float* even = this->out[i * 2] + below * 2;
            const float* odd = this->out[i * 2 + 1] + below * 2;
            To* to = row + i * CODES + threadIdx.x % 4 * 4;
            if constexpr (sizeof(To) == 4) {
                *reinterpret_cast<float4*>(to) = make_float4(even[0], odd[0], even[1], odd[1]);
            } else {
                *reinterpret_cast<uint2*>(to) =
                    make_uint2(pack2<To>(even[0], odd[0]), pack2<To>(even[1], odd[1]));
            }
        }
    }
};
