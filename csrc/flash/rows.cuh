// A row of a head, spread over a warp: lane l holds its elements l, l + 32, l + 64, …
#pragma once

#include "common.cuh"

constexpr int MOST_PARTS = 8;  // so head_dim is 256 at most

template <int PARTS>
struct Row {
    float parts[PARTS] = {};  // of this lane; 0 beyond head_dim

    template <typename T>
    __device__ void load(const T* from, int head_dim) {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
            int d = threadIdx.x % WARP + i * WARP;
            parts[i] = d < head_dim ? to_float(from[d]) : 0.0f;
        }
    }
    // factor × this row, rounded.
    template <typename T>
    __device__ void store(T* to, int head_dim, float factor) const {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
            int d = threadIdx.x % WARP + i * WARP;
            if (d < head_dim) to[d] = from_float<T>(parts[i] * factor);
        }
    }
    // This row += factor × other.
    __device__ void add(float factor, const Row& other) {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) parts[i] += factor * other.parts[i];
    }
    __device__ void multiply(float factor) {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) parts[i] *= factor;
    }
};

// The sum of the products of two rows' elements, in every lane. All 32 lanes have to call it.
template <int PARTS>
__device__ __forceinline__ float dot(const Row<PARTS>& a, const Row<PARTS>& b) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < PARTS; ++i) sum += a.parts[i] * b.parts[i];
    return warp_sum(sum);
}
