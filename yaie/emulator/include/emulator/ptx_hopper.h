// What Hopper's instructions of inline PTX do (sm_90a). Operands are as in ptx.h.
#pragma once

#include "engines.h"
#include "ptx.h"

namespace emulator {
namespace ptx {

EMULATOR_INLINE uint64_t* barrier_at(void* address) { return static_cast<uint64_t*>(address); }

template <class... At>
EMULATOR_INLINE void copy_box(uint64_t map, void* shared, bool store, void* barrier, At... at) {
    const int coordinates[] = {(int)at...};
    emulator_copy_box(reinterpret_cast<const void*>(map), sizeof...(at), coordinates, shared, store,
                      barrier_at(barrier));
}
// To each thread block of the mask, at the same place in its shared memory, counted by its mbarrier.
template <class... At>
EMULATOR_INLINE void multicast_box(uint64_t map, void* shared, uint32_t mask, void* barrier, At... at) {
    for (uint32_t rank = 0; mask >> rank; ++rank) {
        if (!(mask >> rank & 1)) continue;
        copy_box(map, emulator_map_shared(shared, rank), false, emulator_map_shared(barrier, rank), at...);
    }
}
EMULATOR_INLINE uint64_t map_shared(uint64_t address, uint64_t rank) {
    return map_shared_address((uint32_t)address, (uint32_t)rank);
}
EMULATOR_INLINE uint64_t map_pointer(uint64_t address, uint64_t rank) {
    return (uint64_t)emulator_map_shared(reinterpret_cast<void*>(address), (uint32_t)rank);
}
EMULATOR_INLINE void copy_bytes(void* to, const void* from, uint64_t bytes, void* barrier) {
    emulator_copy_bytes(to, from, (uint32_t)bytes, barrier_at(barrier));
}

// An operand of a product. An element, or what a reference names, can be changed while the product
// runs; a variable of its own may be a copy that was made for the instruction.
template <class Declared, class T>
EMULATOR_INLINE void operand(ProductPart& part, int i, T&& x) {
    part.values[i] = (uint32_t)x;
    if constexpr (std::is_lvalue_reference_v<Declared>) {
        part.a[i] = reinterpret_cast<const uint32_t*>(&x);
        part.late[i] = !std::is_const_v<std::remove_reference_t<T>>;
    }
}

EMULATOR_INLINE void wgmma(ProductCall& call, int n, bool bfloat16, bool add, int scale_a, int scale_b,
                           bool a_mn, bool b_mn) {
    MatrixProduct& product = call.part.product;
    product.n = n, product.bfloat16 = bfloat16, product.add = add;
    product.negate_a = scale_a < 0, product.negate_b = scale_b < 0;
    product.a_mn = a_mn, product.b_mn = b_mn;
    emulator_prepare_product(&call);
    emulator_issue_product(&call.operation);
}

// Whether this lane is the one that the warp elects: the first of those in the mask.
EMULATOR_INLINE uint64_t elect(uint32_t mask, uint64_t& chosen) {
    __syncwarp(mask);
    chosen = (unsigned)__builtin_ctz(mask) == lane();
    return __builtin_ctz(mask);
}

}  // namespace ptx
}  // namespace emulator
