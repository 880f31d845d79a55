// Replaces CUB's warp_scan.cuh: prefix sums over the lanes of a warp or a part of one.
#pragma once

#include "../util.h"

namespace cub {

template <class T, int Threads = 32>
class WarpScan {
    static_assert(Threads > 0 && Threads <= 32, "a warp has 32 lanes");

    static EMULATOR_INLINE int lane() { return detail::thread_rank() % 32; }
    static EMULATOR_INLINE int rank() { return lane() % Threads; }
    static EMULATOR_INLINE unsigned mask() { return detail::lanes(lane() - rank(), Threads); }

  public:
    struct TempStorage {};  // lanes exchange values by shuffles
    EMULATOR_INLINE explicit WarpScan(TempStorage&) {}

    EMULATOR_INLINE T Broadcast(T value, unsigned source) {
        return detail::shuffle(mask(), value, lane() - rank() + (int)source);
    }

    // Of all lanes: what they add up to is `total`.
    template <class Operation>
    EMULATOR_INLINE void InclusiveScan(T value, T& result, Operation operation, T& total) {
        for (int distance = 1; distance < Threads; distance *= 2) {
            const bool more = rank() >= distance;
            const T other = detail::shuffle(mask(), value, more ? lane() - distance : lane());
            if (more) value = operation(other, value);
        }
        result = value;
        total = detail::shuffle(mask(), result, 31 - __clz((int)mask()));
    }
    // Lane 0 receives its own value, since nothing is before it.
    template <class Operation>
    EMULATOR_INLINE void ExclusiveScan(T value, T& result, Operation operation) {
        InclusiveScan(value, value, operation);
        result = detail::shuffle(mask(), value, rank() ? lane() - 1 : lane());
    }
    template <class Operation>
    EMULATOR_INLINE void ExclusiveScan(T value, T& result, T initial, Operation operation,
                                       T& total) {
        InclusiveScan(value, value, operation, total);
        result = detail::shuffle(mask(), value, rank() ? lane() - 1 : lane());
        result = rank() ? operation(initial, result) : initial;
    }
    EMULATOR_SCANS(, T value, T& result)
};

}  // namespace cub
