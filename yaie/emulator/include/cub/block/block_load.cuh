// Replaces CUB's block_load.cuh and block_store.cuh: several values per thread, adjacent in memory
// unless the arrangement is striped.
#pragma once

#include "../util.h"

namespace cub {

enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
};

namespace detail {

// Where an item of this thread is; the transposing algorithms reach memory in stripes.
template <int Threads, int Items>
EMULATOR_INLINE int place(bool striped, int item) {
    return striped ? item * Threads + thread_rank() : thread_rank() * Items + item;
}

template <class T, int Threads, int Items, int Algorithm>
class Mover {
    static constexpr bool transposes = Algorithm >= 3, striped = Algorithm == 1;
    static_assert(Algorithm != 4 || Threads % 32 == 0, "WARP_TRANSPOSE takes whole warps");

  public:
    struct TempStorage {
        emulator::Raw<T> staged[transposes ? Threads * Items : 1];
    };
    EMULATOR_INLINE Mover() : storage_(private_storage<TempStorage>()) {}
    EMULATOR_INLINE explicit Mover(TempStorage& storage) : storage_(storage) {}

    template <class From>
    EMULATOR_INLINE void Load(From from, T (&items)[Items], int valid = Threads * Items) {
        for (int item = 0; item < Items; ++item) {
            const int i = place<Threads, Items>(striped || transposes, item);
            if (i < valid) items[item] = from[i];
        }
        if constexpr (transposes) exchange(items, true, false);
    }
    template <class From, class Default>
    EMULATOR_INLINE void Load(From from, T (&items)[Items], int valid, Default otherwise) {
        for (T& item : items) item = otherwise;
        Load(from, items, valid);
    }
    template <class To>
    EMULATOR_INLINE void Store(To to, T (&items)[Items], int valid = Threads * Items) {
        if constexpr (transposes) exchange(items, false, true);
        for (int item = 0; item < Items; ++item) {
            const int i = place<Threads, Items>(striped || transposes, item);
            if (i < valid) to[i] = items[item];
        }
    }

  private:
    EMULATOR_INLINE void exchange(T (&items)[Items], bool from_stripes, bool to_stripes) {
        for (int item = 0; item < Items; ++item) {
            storage_.staged[place<Threads, Items>(from_stripes, item)].once() = items[item];
        }
        __syncthreads();
        for (int item = 0; item < Items; ++item) {
            items[item] = storage_.staged[place<Threads, Items>(to_stripes, item)].once();
        }
    }

    TempStorage& storage_;
};

}  // namespace detail

template <class T, int X, int Items, BlockLoadAlgorithm Algorithm = BLOCK_LOAD_DIRECT, int Y = 1,
          int Z = 1>
struct BlockLoad : detail::Mover<T, X * Y * Z, Items, Algorithm> {
    using detail::Mover<T, X * Y * Z, Items, Algorithm>::Mover;
};
template <class T, int X, int Items, BlockStoreAlgorithm Algorithm = BLOCK_STORE_DIRECT, int Y = 1,
          int Z = 1>
struct BlockStore : detail::Mover<T, X * Y * Z, Items, Algorithm> {
    using detail::Mover<T, X * Y * Z, Items, Algorithm>::Mover;
};

}  // namespace cub
