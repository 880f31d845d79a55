// Small stand-ins for TMA and wgmma, whose results are easily told.
#pragma once

#include <cuda_runtime.h>

#include "emulator/async.h"

using namespace emulator;

__device__ __forceinline__ void wait(uint64_t* barrier, int parity) {
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

struct Copied {
    float* to;
    const float* from;
};

__device__ __forceinline__ AsyncOperation copied(const Copied& what, const Span (&spans)[2]) {
    auto perform = [](void* data) {
        const Copied& what = *(const Copied*)data;
        for (int i = 0; i < 128; ++i) what.to[i] = what.from[i];
    };
    return {&spans[0], 1, &spans[1], 1, perform, &what, sizeof(what), Completion::bulk_group};
}

// 512 bytes to shared memory, completed by an mbarrier.
__device__ __forceinline__ void load(float* to, const float* from, uint64_t* barrier) {
    Copied what = {to, from};
    Span spans[] = {{from, 512}, {to, 512}};
    AsyncOperation operation = copied(what, spans);
    operation.completion = Completion::mbarrier;
    operation.mbarrier = barrier;
    operation.bytes = 512;
    async_issue(operation);
}

// 512 bytes from shared memory, completed by a group.
__device__ __forceinline__ void store(float* to, const float* from) {
    Copied what = {to, from};
    Span spans[] = {{from, 512}, {to, 512}};
    async_issue(copied(what, spans));
}

struct Multiplied {
    float *sums, *scale;
    const float *tile, *weights;
};

// sums[i] += scale[0] × tile[i ? 127 - t : t] × weights[t], by the 128 threads of a warp group.
__device__ __forceinline__ void product(float (&sums)[2], float (&scale)[1], const float* tile,
                                        const float* weights) {
    Multiplied what = {sums, scale, tile, weights};
    Span reads[] = {{tile, 512}, {weights, 512}}, fragments = {scale, 4}, accumulators = {sums, 8};
    auto perform = [](void* const* data) {
        for (int t = 0; t < 128; ++t) {
            const Multiplied& what = *(const Multiplied*)data[t];
            what.sums[0] += what.scale[0] * what.tile[t] * what.weights[t];
            what.sums[1] += what.scale[0] * what.tile[127 - t] * what.weights[t];
        }
    };
    wgmma_issue({reads, 2, &fragments, 1, &accumulators, 1, perform, &what, sizeof(what)});
}
