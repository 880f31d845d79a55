// Replaces CUB's block_reduce.cuh: each warp by shuffles, then thread 0 adds the warps' results.
#pragma once

#include "../warp/warp_reduce.cuh"

namespace cub {

enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS,
    BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC,
};

// The result is thread 0's. The storage may be used again after a __syncthreads().
template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1>
class BlockReduce {
    static constexpr int threads = X * Y * Z, warps = (threads + 31) / 32;

  public:
    struct TempStorage {
        emulator::Raw<T> of_warp[warps];
    };
    EMULATOR_INLINE BlockReduce() : storage_(detail::private_storage<TempStorage>()) {}
    EMULATOR_INLINE explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

    template <class Operation>
    EMULATOR_INLINE T Reduce(T value, Operation operation, int valid = threads) {
        const int rank = detail::thread_rank(), warp = rank / 32;
        typename WarpReduce<T>::TempStorage none;
        value = WarpReduce<T>(none).Reduce(value, operation, valid - warp * 32);
        if (rank % 32 == 0) storage_.of_warp[warp].once() = value;
        __syncthreads();
        for (int other = 1; rank == 0 && other < warps && other * 32 < valid; ++other) {
            value = operation(value, storage_.of_warp[other].once());
        }
        return value;
    }
    template <int Items, class Operation>
    EMULATOR_INLINE T Reduce(T (&values)[Items], Operation operation) {
        T value = values[0];
        for (int item = 1; item < Items; ++item) value = operation(value, values[item]);
        return Reduce(value, operation);
    }
    EMULATOR_INLINE T Sum(T value, int valid = threads) { return Reduce(value, Add(), valid); }
    template <int Items>
    EMULATOR_INLINE T Sum(T (&values)[Items]) {
        return Reduce(values, Add());
    }

  private:
    TempStorage& storage_;
};

}  // namespace cub
