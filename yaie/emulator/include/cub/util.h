// What the parts of CUB share: ranks, shuffles of any type, and operations.
#pragma once

#include "../cuda/functional"
#include "../cuda_runtime.h"

namespace cub {

using Add = cuda::std::plus<>;
using Sum = cuda::std::plus<>;  // the older names of the operations
using Max = cuda::maximum<>;
using Min = cuda::minimum<>;

namespace detail {

EMULATOR_INLINE int thread_rank() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

// `count` lanes from `first` on, as far as the thread block has them.
EMULATOR_INLINE unsigned lanes(int first, int count) {
    const int threads = blockDim.x * blockDim.y * blockDim.z - thread_rank() / 32 * 32;
    const unsigned long long all = (1ull << min(threads, 32)) - 1;
    return (unsigned)(all & (((1ull << count) - 1) << first));
}

template <class T>
EMULATOR_INLINE T shuffle(unsigned mask, T value, int lane) {
    if constexpr (sizeof(T) <= 8) {
        return __shfl_sync(mask, value, lane);
    } else {
        uint64_t words[(sizeof(T) + 7) / 8] = {};
        memcpy(words, &value, sizeof(T));
        for (uint64_t& word : words) word = __shfl_sync(mask, word, lane);
        memcpy(&value, words, sizeof(T));
        return value;
    }
}

// Shared memory of a collective that was given none; all of its type share it.
template <class Storage>
EMULATOR_INLINE Storage& private_storage() {
    __shared__ emulator::Raw<Storage> storage;
    return storage.once();
}

}  // namespace detail
// Scans without the total, and sums, for a class that has scans with it.
#define EMULATOR_SCANS(Items, Value, Result)                                                 \
    template <Items class Operation>                                                         \
    EMULATOR_INLINE void InclusiveScan(Value, Result, Operation operation) {                 \
        T total;                                                                             \
        InclusiveScan(value, result, operation, total);                                      \
    }                                                                                        \
    template <Items class Operation>                                                         \
    EMULATOR_INLINE void ExclusiveScan(Value, Result, T initial, Operation operation) {      \
        T total;                                                                             \
        ExclusiveScan(value, result, initial, operation, total);                             \
    }                                                                                        \
    template <Items class Operation = Add>                                                   \
    EMULATOR_INLINE void InclusiveSum(Value, Result, T& total) {                             \
        InclusiveScan(value, result, Operation(), total);                                    \
    }                                                                                        \
    template <Items class Operation = Add>                                                   \
    EMULATOR_INLINE void ExclusiveSum(Value, Result, T& total) {                             \
        ExclusiveScan(value, result, T(), Operation(), total);                               \
    }                                                                                        \
    template <Items class Operation = Add>                                                   \
    EMULATOR_INLINE void InclusiveSum(Value, Result) {                                       \
        InclusiveScan(value, result, Operation());                                           \
    }                                                                                        \
    template <Items class Operation = Add>                                                   \
    EMULATOR_INLINE void ExclusiveSum(Value, Result) {                                       \
        ExclusiveScan(value, result, T(), Operation());                                      \
    }

}  // namespace cub
