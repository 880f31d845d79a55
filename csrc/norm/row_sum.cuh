// The sum over the threads of a row, shared by the kernels that normalize.
#pragma once
#include "common.cuh"

constexpr int MAX_THREADS = 1024;

// The sum over the threads of a row: a warp, or the whole thread block. All of them must call it.
static __device__ float row_sum(float value) {
    __shared__ float per_warp[MAX_THREADS / WARP];
    value = warp_sum(value);
    if (blockDim.x == WARP) return value;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (lane == 0) per_warp[warp] = value;
    __syncthreads();
    return warp_sum(lane < blockDim.x / WARP ? per_warp[lane] : 0.0f);
}
