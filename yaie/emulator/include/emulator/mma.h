// Replaces the tensor-core instructions of csrc/mma.cuh: the lanes of a warp exchange by shuffles
// what an instruction would take from all of them.
#pragma once

#include <string.h>

#include "../cuda_runtime.h"

namespace emulator {

template <class T>
EMULATOR_INLINE void unpack2(uint32_t pair, double (&to)[2]) {
    T both[2];
    memcpy(both, &pair, 4);
    to[0] = (float)both[0], to[1] = (float)both[1];
}

}  // namespace emulator

EMULATOR_INLINE void cp_async_16(void* to, const void* from, bool valid) {
    emulator::start_copy(to, from, 16, valid ? 0 : 16);
}
EMULATOR_INLINE void cp_async_commit() { emulator_commit_copies(); }
template <int PENDING>
EMULATOR_INLINE void cp_async_wait() {
    emulator_wait_copies(PENDING);
}

EMULATOR_INLINE void ldmatrix_x4(uint32_t (&to)[4], const void* row) {
    int lane = threadIdx.x % 32;
    for (int matrix = 0; matrix < 4; ++matrix) {
        auto from = (const uint32_t*)__shfl_sync(~0u, (uint64_t)row, matrix * 8 + lane / 4);
        to[matrix] = from[lane % 4];
    }
}
EMULATOR_INLINE void ldmatrix_x4_trans(uint32_t (&to)[4], const void* row) {
    int lane = threadIdx.x % 32;
    for (int matrix = 0; matrix < 4; ++matrix) {
        uint32_t both[2];
        for (int i = 0; i < 2; ++i) {
            int pair = matrix * 8 + lane % 4 * 2 + i;
            both[i] = ((const uint16_t*)__shfl_sync(~0u, (uint64_t)row, pair))[lane / 4];
        }
        to[matrix] = both[0] | both[1] << 16;
    }
}

EMULATOR_INLINE float exp2_approx(float x) {
    float power = exp2f(x);
    return power < 1.17549435e-38f ? 0.0f : power;
}

// The products are exact and the sum is rounded once; tensor cores sum less accurately.
template <class T>
EMULATOR_INLINE void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    double sums[4] = {c[0], c[1], c[2], c[3]};
    for (int k = 0; k < 8; ++k) {  // pairs of k
        double rows[2][2], columns[2][2];
        for (int i = 0; i < 2; ++i) {
            uint32_t a_pair = __shfl_sync(~0u, a[k / 4 * 2 + i], group * 4 + k % 4);
            uint32_t b_pair = __shfl_sync(~0u, k < 4 ? b0 : b1, (pair + i) * 4 + k % 4);
            emulator::unpack2<T>(a_pair, rows[i]);
            emulator::unpack2<T>(b_pair, columns[i]);
        }
        for (int i = 0; i < 4; ++i)
            sums[i] += rows[i / 2][0] * columns[i % 2][0] + rows[i / 2][1] * columns[i % 2][1];
    }
    for (int i = 0; i < 4; ++i) c[i] = (float)sums[i];
}
