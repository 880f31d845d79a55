// Tensor cores and asynchronous copies (sm_80 on): one function per PTX instruction.
//
// A warp multiplies a 16 × 16 tile of A by a 16 × 8 tile of B and adds the product to a 16 × 8 tile
// of C in float32. PTX calls a block of 8 × 8 elements a matrix. With group = lane / 4 and
// pair = 2 × (lane % 4), a lane holds the following elements, two per register for A and B:
//   A  rows group and group + 8, columns pair, pair + 1, pair + 8 and pair + 9: 4 registers, one
//      for each matrix in the order upper left, lower left, upper right, lower right
//   B  rows pair, pair + 1, pair + 8 and pair + 9 of column group: 2 registers, one for the upper
//      matrix and one for the lower
//   C  rows group and group + 8, columns pair and pair + 1: 4 floats
#pragma once

#include "common.cuh"

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Start a copy of 16 bytes from global to shared memory. If not valid, it writes 16 zeros instead
// and reads nothing.
__device__ __forceinline__ void cp_async_16(void* to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
}
// Close a group: the copies that this thread has started since the last commit.
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Wait until at most the PENDING newest groups of this thread are still in flight.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
}

// Load four 8 × 8 matrices, with rows of 16 bytes, from shared memory. Lane l passes the address of
// row l % 8 of matrix l / 8, and receives elements `pair` and `pair` + 1 of row `group` of each.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row)));
}
// The same, transposed: the lane receives element `group` of rows `pair` and `pair` + 1.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row)));
}

// c += a b, where a is 16 × 16, b is 16 × 8 and c is 16 × 8.
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

// An online softmax on powers of 2: scores carry the factor log2(e), and a log-sum-exp in powers of
// 2 times ln(2) is the natural one. The initial maximum is finite, as inf - inf is NaN.
constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f, LOWEST = -3.0e38f;

// 2 to the power of x, within about 2 units in the last place. A subnormal result (below 2^-126)
// becomes 0.
__device__ __forceinline__ float exp2_approx(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(power) : "f"(x));
    return power;
}

// Two floats rounded to T and packed into one register, the first in its lower half.
template <typename T>
__device__ __forceinline__ uint32_t pack2(float low, float high) {
    alignas(4) T both[2] = {from_float<T>(low), from_float<T>(high)};
    return *reinterpret_cast<uint32_t*>(both);
}
