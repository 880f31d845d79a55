// Prefix sums of a warp and of a thread block, by shuffles.
#pragma once

#include "common.cuh"

// The sum of the values of the lanes from 0 to this one. All 32 lanes have to call it.
__device__ __forceinline__ int warp_scan(int value) {
    int lane = threadIdx.x % WARP;
    for (int step = 1; step < WARP; step *= 2) {
        int below = __shfl_up_sync(ALL_LANES, value, step);
        if (lane >= step) value += below;
    }
    return value;
}

// The sum of the values of the threads from 0 to this one, and in `total` that of all of them. All
// threads of a thread block of whole warps have to call it.
__device__ __forceinline__ int block_scan(int value, int& total) {
    __shared__ int per_warp[WARP];  // at most 1024 threads are at most 32 warps
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    value = warp_scan(value);
    if (lane == WARP - 1) per_warp[warp] = value;
    __syncthreads();
    int up_to = warp_scan(lane < warps ? per_warp[lane] : 0);  // every warp does it, for itself
    total = __shfl_sync(ALL_LANES, up_to, WARP - 1);
    int before = __shfl_sync(ALL_LANES, up_to, warp > 0 ? warp - 1 : 0);
    __syncthreads();  // per_warp has been read, the next call may write it
    return warp > 0 ? before + value : value;
}
