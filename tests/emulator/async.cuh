// What the runtime does beside the threads, by name; small stand-ins for TMA and wgmma, whose results
// are easily told.
#pragma once

#include <cuda_runtime.h>

#include "emulator/engines.h"

using namespace emulator;

// The runtime's own functions, as PTX calls them.
EMULATOR_INLINE void mbarrier_init(uint64_t* barrier, uint32_t count) {
    emulator_mbarrier_init(barrier, count);
}
EMULATOR_INLINE void mbarrier_inval(uint64_t* barrier) { emulator_mbarrier_inval(barrier); }
EMULATOR_INLINE uint64_t mbarrier_arrive(uint64_t* barrier, uint32_t count = 1) {
    return emulator_mbarrier_arrive(barrier, count, 0, 0);
}
EMULATOR_INLINE uint64_t mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes) {
    return emulator_mbarrier_arrive(barrier, 1, bytes, 0);
}
EMULATOR_INLINE uint64_t mbarrier_arrive_drop(uint64_t* barrier, uint32_t count = 1) {
    return emulator_mbarrier_arrive(barrier, count, 0, 1);
}
EMULATOR_INLINE void mbarrier_expect_tx(uint64_t* barrier, uint32_t bytes) {
    emulator_mbarrier_arrive(barrier, 0, bytes, 0);
}
// By the phase's parity, or by its token.
EMULATOR_INLINE bool mbarrier_try_wait(uint64_t* barrier, uint32_t parity) {
    return emulator_mbarrier_wait(barrier, parity, 1) != 0;
}
EMULATOR_INLINE bool mbarrier_wait_token(uint64_t* barrier, uint64_t token) {
    return emulator_mbarrier_wait(barrier, token, 0) != 0;
}

EMULATOR_INLINE void named_barrier_sync(int id, int threads = 0) {
    emulator_named_barrier(id, threads, 1);
}
EMULATOR_INLINE void named_barrier_arrive(int id, int threads) {
    emulator_named_barrier(id, threads, 0);
}

EMULATOR_INLINE void bulk_commit() { emulator_bulk_commit(); }
EMULATOR_INLINE void bulk_wait(int pending, bool only_reads) {
    emulator_bulk_wait((size_t)pending, only_reads);
}

EMULATOR_INLINE void wgmma_issue(const Product& product) { emulator_issue_product(&product); }
EMULATOR_INLINE void wgmma_fence() { emulator_product_fence(); }
EMULATOR_INLINE void wgmma_commit() { emulator_product_commit(); }
EMULATOR_INLINE void wgmma_wait(int pending) { emulator_product_wait((size_t)pending); }

EMULATOR_INLINE void fence_proxy_async() { emulator_fence_async(3); }
EMULATOR_INLINE void fence_mbarrier_init() { emulator_fence_async(4); }
EMULATOR_INLINE void setmaxnreg(bool increase, int registers) {
    emulator_set_registers(increase, registers);
}

__device__ __forceinline__ void wait(uint64_t* barrier, int parity) {
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

// 512 bytes to shared memory, completed by an mbarrier; from shared memory, completed by a group.
__device__ __forceinline__ void load(float* to, const float* from, uint64_t* barrier) {
    emulator_copy_bytes(to, from, 512, barrier);
}
__device__ __forceinline__ void store(float* to, const float* from) {
    emulator_copy_bytes(to, from, 512, nullptr);
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
