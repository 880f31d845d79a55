// Replaces NVIDIA's cooperative_groups/reduce.h, for tiles and coalesced groups.
#pragma once

#include "../cooperative_groups.h"

namespace cooperative_groups {

template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };

template <unsigned int Size, class Parent, class T, class Operation>
EMULATOR_INLINE T reduce(const thread_block_tile<Size, Parent>& tile, T value, Operation&& op) {
    for (unsigned int lanes = Size / 2; lanes > 0; lanes /= 2) {
        value = op(value, tile.shfl_xor(value, lanes));
    }
    return value;
}
template <class T, class Operation>
EMULATOR_INLINE T reduce(const coalesced_group& group, T value, Operation&& op) {
    T total = group.shfl(value, 0);
    for (unsigned int rank = 1; rank < group.size(); ++rank) {
        total = op(total, group.shfl(value, rank));
    }
    return total;
}

}  // namespace cooperative_groups
