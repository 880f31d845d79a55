// Replaces CUB's block_scan.cuh: each warp by shuffles, then the sums of the warps before.
#pragma once

#include "../warp/warp_scan.cuh"

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

// The storage may be used again after a __syncthreads().
template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1>
class BlockScan {
    static constexpr int warps = (X * Y * Z + 31) / 32;

  public:
    struct TempStorage {
        emulator::Raw<T> of_warp[warps], before_all;
    };
    EMULATOR_INLINE BlockScan() : storage_(detail::private_storage<TempStorage>()) {}
    EMULATOR_INLINE explicit BlockScan(TempStorage& storage) : storage_(storage) {}

    // One value per thread. Without an initial value thread 0 of an exclusive scan receives its own.
    template <class Operation>
    EMULATOR_INLINE void InclusiveScan(T value, T& result, Operation operation, T& total) {
        T before;
        scan(value, operation, before, result, total);
    }
    template <class Operation>
    EMULATOR_INLINE void ExclusiveScan(T value, T& result, Operation operation, T& total) {
        T inclusive;
        scan(value, operation, result, inclusive, total);
    }
    template <class Operation>
    EMULATOR_INLINE void ExclusiveScan(T value, T& result, T initial, Operation operation, T& total) {
        ExclusiveScan(value, result, operation, total);
        result = detail::thread_rank() ? operation(initial, result) : initial;
    }
    // Behind what `prefix`, called by the first warp with the total, says is before the thread block.
    template <class Operation, class Prefix,
              std::enable_if_t<std::is_invocable<Prefix&, T>::value, int> = 0>
    EMULATOR_INLINE void ExclusiveScan(T value, T& result, Operation operation, Prefix& prefix) {
        T total;
        ExclusiveScan(value, result, operation, total);
        const int rank = detail::thread_rank();
        if (rank < 32) {
            const T before = prefix(total);
            if (rank == 0) storage_.before_all.once() = before;
        }
        __syncthreads();
        const T before = storage_.before_all.once();
        result = rank ? operation(before, result) : before;
    }

    // Several adjacent values per thread.
    template <int Items, class Operation>
    EMULATOR_INLINE void InclusiveScan(T (&values)[Items], T (&results)[Items], Operation operation,
                                       T& total) {
        T before;
        exclusive(values, operation, before, total);
        T sum = detail::thread_rank() ? operation(before, values[0]) : values[0];
        for (int item = 0; item < Items; ++item) {
            if (item) sum = operation(sum, values[item]);
            results[item] = sum;
        }
    }
    template <int Items, class Operation>
    EMULATOR_INLINE void ExclusiveScan(T (&values)[Items], T (&results)[Items], T initial,
                                       Operation operation, T& total) {
        T before;
        exclusive(values, operation, before, total);
        T sum = detail::thread_rank() ? operation(initial, before) : initial;
        for (int item = 0; item < Items; ++item) {
            const T value = values[item];
            results[item] = sum;
            sum = operation(sum, value);
        }
    }

    // Of one value per thread, and of several.
#define EMULATOR_SEVERAL int Items,
    EMULATOR_SCANS(, T value, T& result)
    EMULATOR_SCANS(EMULATOR_SEVERAL, T (&value)[Items], T (&result)[Items])
#undef EMULATOR_SEVERAL
    template <class Prefix, std::enable_if_t<std::is_invocable<Prefix&, T>::value, int> = 0>
    EMULATOR_INLINE void ExclusiveSum(T value, T& result, Prefix& prefix) {
        ExclusiveScan(value, result, Add(), prefix);
    }

  private:
    // `before`: of the threads before this one; thread 0 receives its own value.
    template <class Operation>
    EMULATOR_INLINE void scan(T value, Operation operation, T& before, T& inclusive, T& total) {
        const int rank = detail::thread_rank(), warp = rank / 32, lane = rank % 32;
        const unsigned mask = detail::lanes(0, 32);
        typename WarpScan<T>::TempStorage none;
        WarpScan<T>(none).InclusiveScan(value, inclusive, operation);
        before = detail::shuffle(mask, inclusive, lane ? lane - 1 : 0);
        if (lane == 31 - __clz((int)mask)) storage_.of_warp[warp].once() = inclusive;
        __syncthreads();
        total = storage_.of_warp[0].once();
        for (int other = 1; other <= warps; ++other) {
            if (other == warp) {
                before = lane ? operation(total, before) : total;
                inclusive = operation(total, inclusive);
            }
            if (other < warps) total = operation(total, storage_.of_warp[other].once());
        }
    }
    template <int Items, class Operation>
    EMULATOR_INLINE void exclusive(T (&values)[Items], Operation operation, T& before, T& total) {
        T sum = values[0], inclusive;
        for (int item = 1; item < Items; ++item) sum = operation(sum, values[item]);
        scan(sum, operation, before, inclusive, total);
    }

    TempStorage& storage_;
};

}  // namespace cub
