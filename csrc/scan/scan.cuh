// Prefix sums over a warp and over a thread block, by shuffles.
#pragma once

#include "common.cuh"

// The sum of `value` over lanes 0 to this one. All 32 lanes must call it.
__device__ __forceinline__ int warp_scan(int value) {
    int lane = threadIdx.x % WARP;
    for (int step = 1; step < WARP; step *= 2) {
        int below = __shfl_up_sync(ALL_LANES, value, step);
        if (lane >= step) value += below;
    }
    return value;
}

// The sum of `value` over threads 0 to this one; `total` becomes the sum over all threads. All of
// them must call it, and the thread block must consist of whole warps.
__device__ __forceinline__ int block_scan(int value, int& total) {
    __shared__ int per_warp[WARP];  // at most 1024 threads, so at most 32 warps
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    value = warp_scan(value);
    if (lane == WARP - 1) per_warp[warp] = value;
    __syncthreads();
    int up_to = warp_scan(lane < warps ? per_warp[lane] : 0);  // each warp computes it for itself
    total = __shfl_sync(ALL_LANES, up_to, WARP - 1);
    int before = __shfl_sync(ALL_LANES, up_to, warp > 0 ? warp - 1 : 0);
    __syncthreads();  // wait until per_warp is read: the next call overwrites it
    return warp > 0 ? before + value : value;
}
