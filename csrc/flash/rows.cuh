// A row of a head, spread over a warp: lane l holds its elements l, l + 32, l + 64, …
#pragma once

#include "common.cuh"

constexpr int MOST_PARTS = 8;  // so head_dim is at most 256

template <int PARTS>
struct Row {
    float parts[PARTS] = {};  // this lane's elements; 0 past head_dim

    template <typename T>
    __device__ void load(const T* from, int head_dim) {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
            int d = threadIdx.x % WARP + i * WARP;
            parts[i] = d < head_dim ? to_float(from[d]) : 0.0f;
        }
    }
    // Store factor × this row, rounded to T.
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

// The dot product of two rows, returned in every lane. All 32 lanes must call it.
template <int PARTS>
__device__ __forceinline__ float dot(const Row<PARTS>& a, const Row<PARTS>& b) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < PARTS; ++i) sum += a.parts[i] * b.parts[i];
    return warp_sum(sum);
}
