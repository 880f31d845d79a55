// Tensor cores and asynchronous copies (sm_80 on): an instruction of PTX each, under its own name.
//
// A warp multiplies a 16 × 16 tile of A with a 16 × 8 tile of B, and adds to 16 × 8 floats of C.
// What a lane holds of them, with group = lane / 4 and pair = 2 × (lane % 4), two numbers a
// register; a tile of 8 × 8 is called a matrix:
//   A  rows group and group + 8, columns pair, pair + 1, and these + 8: 4 registers, 4 matrices
//      in the order: above left, below left, above right, below right
//   B  rows pair, pair + 1, and these + 8, of column group: 2 registers, 2 matrices one above the
//      other
//   C  rows group and group + 8, columns pair and pair + 1: 4 floats
#pragma once

#include "common.cuh"

#ifdef __CUDACC__

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Begin to copy 16 bytes from global to shared memory; if not valid, 16 zeros, and nothing is read.
__device__ __forceinline__ void cp_async_16(void* to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
}
// What this thread began since the last commit is a group.
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Wait until at most the PENDING newest groups of this thread are under way.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
}

// Four matrices from shared memory, each of 8 rows of 16 bytes. Lane l says where row l % 8 of
// matrix l / 8 begins, and gets of each matrix the numbers `pair` and `pair` + 1 of row `group`.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// The same, turned: the numbers `group` of rows `pair` and `pair` + 1.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// c += a b for tiles of 16 × 16, 16 × 8 and 16 × 8.
template <typename T>
__device__ __forceinline__ void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1);
template <>
__device__ __forceinline__ void mma_16x8x16<__half>(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_16x8x16<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4],
                                                           uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2 to the power of x, to about 2 units in the last place, and 0 for what float cannot hold without
// loss (less than 2^-126).
__device__ __forceinline__ float exp2_approx(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(power) : "f"(x));
    return power;
}

#else
#include "emulator/mma.h"
#endif

// Two floats, rounded, in one register: the first in its lower half.
template <typename T>
__device__ __forceinline__ uint32_t pack2(float low, float high) {
    alignas(4) T both[2] = {from_float<T>(low), from_float<T>(high)};
    return *reinterpret_cast<uint32_t*>(both);
}
