// Replaces CUB's warp_reduce.cuh: one value per lane of a warp, or of a power-of-two part of one.
#pragma once

#include "../util.h"

namespace cub {

// The result is lane 0's; other lanes receive what they have added so far.
template <class T, int Threads = 32>
class WarpReduce {
    static_assert(Threads > 0 && Threads <= 32, "a warp has 32 lanes");

  public:
    struct TempStorage {};  // lanes exchange values by shuffles
    EMULATOR_INLINE explicit WarpReduce(TempStorage&) {}

    template <class Operation>
    EMULATOR_INLINE T Reduce(T value, Operation operation, int valid = Threads) {
        const int lane = detail::thread_rank() % 32, rank = lane % Threads, first = lane - rank;
        const unsigned mask = detail::lanes(first, Threads);
        valid = min(valid, __popc(mask));
        for (int distance = 1; distance < Threads; distance *= 2) {
            const bool more = rank + distance < valid;
            const T other = detail::shuffle(mask, value, more ? lane + distance : lane);
            if (more) value = operation(value, other);
        }
        return value;
    }
    EMULATOR_INLINE T Sum(T value, int valid = Threads) { return Reduce(value, Add(), valid); }
    EMULATOR_INLINE T Max(T value, int valid = Threads) {
        return Reduce(value, cuda::maximum<>(), valid);
    }
    EMULATOR_INLINE T Min(T value, int valid = Threads) {
        return Reduce(value, cuda::minimum<>(), valid);
    }
};

}  // namespace cub
