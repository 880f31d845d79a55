// Replaces NVIDIA's cooperative_groups/scan.h, for tiles and coalesced groups.
#pragma once

#include "reduce.h"

namespace cooperative_groups {

template <class Group, class T, class Operation = plus<T>>
EMULATOR_INLINE T inclusive_scan(const Group& group, T value, Operation&& op = {}) {
    const unsigned int rank = group.thread_rank();
    for (unsigned int distance = 1; distance < group.size(); distance *= 2) {
        const T before = group.shfl_up(value, distance);
        if (rank >= distance) value = op(before, value);
    }
    return value;
}
// The first of the group receives T(), which is only meant for a sum.
template <class Group, class T, class Operation = plus<T>>
EMULATOR_INLINE T exclusive_scan(const Group& group, T value, Operation&& op = {}) {
    const T before = group.shfl_up(inclusive_scan(group, value, op), 1);
    return group.thread_rank() ? before : T();
}

}  // namespace cooperative_groups
