// Barriers, shuffles, votes and reductions.
#pragma once

#include <string.h>

#include <type_traits>

#include "api.h"

// Inlined into the kernel, so that the runtime sees the line of the kernel as the caller.
#define EMULATOR_INLINE inline __attribute__((always_inline))

static const int warpSize = 32;
#ifdef EMULATOR_CHECKED
#define threadIdx (emulator_thread_index())
#define blockIdx (emulator_block_index())
#define blockDim (emulator_block_dim())
#define gridDim (emulator_grid_dim())
#else
#define threadIdx (emulator_place.thread)
#define blockIdx (emulator_place.block)
#define blockDim (emulator_place.block_dim)
#define gridDim (emulator_place.grid_dim)
#endif

namespace emulator {

template <class T>
EMULATOR_INLINE uint64_t to_bits(T value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value,
                  "a shuffle moves values of at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <class T>
EMULATOR_INLINE T from_bits(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof(T));
    return value;
}

template <class T>
EMULATOR_INLINE T shuffle(Collective operation, unsigned mask, T value, int parameter, int width) {
    return from_bits<T>(emulator_collective(operation, mask, to_bits(value), parameter, width));
}

// Start an asynchronous copy, as `emulator_start_copy` does.
EMULATOR_INLINE void start_copy(void* to, const void* from, size_t size, size_t zeros) {
#ifndef EMULATOR_CHECKED  // an address that is not mapped is a fault of the calling line
    if (zeros < size) (void)*static_cast<const volatile char*>(from);
    (void)*static_cast<const volatile char*>(to);
#endif
    emulator_start_copy(to, from, size, zeros);
}

EMULATOR_INLINE unsigned vote(Collective operation, unsigned mask, uint64_t value) {
    return static_cast<unsigned>(emulator_collective(operation, mask, value, 0, 32));
}

}  // namespace emulator

EMULATOR_INLINE void __syncthreads() { emulator_sync_threads(emulator::Vote::none, 0); }
#define EMULATOR_VOTE(name)                                                                   \
    EMULATOR_INLINE int __syncthreads_##name(int p) {                                         \
        return emulator_sync_threads(emulator::Vote::by_##name, p);                           \
    }
EMULATOR_VOTE(count)
EMULATOR_VOTE(and)
EMULATOR_VOTE(or)
#undef EMULATOR_VOTE

EMULATOR_INLINE void __syncwarp(unsigned mask = 0xffffffffu) {
    emulator::vote(emulator::Collective::sync, mask, 0);
}
EMULATOR_INLINE unsigned __activemask() { return emulator_active_lanes(); }

EMULATOR_INLINE void __threadfence() { emulator_fence(1); }
EMULATOR_INLINE void __threadfence_system() { emulator_fence(1); }
EMULATOR_INLINE void __threadfence_block() { emulator_fence(0); }

#define EMULATOR_SHUFFLE(name, operation, Parameter)                                          \
    template <class T>                                                                        \
    EMULATOR_INLINE T name(unsigned mask, T value, Parameter parameter, int width = 32) {     \
        return emulator::shuffle(emulator::Collective::operation, mask, value, parameter, width); \
    }
EMULATOR_SHUFFLE(__shfl_sync, shuffle, int)
EMULATOR_SHUFFLE(__shfl_up_sync, shuffle_up, unsigned)
EMULATOR_SHUFFLE(__shfl_down_sync, shuffle_down, unsigned)
EMULATOR_SHUFFLE(__shfl_xor_sync, shuffle_xor, int)
#undef EMULATOR_SHUFFLE

#define EMULATOR_COLLECTIVE(Result, name, operation, Value, given)                            \
    EMULATOR_INLINE Result name(unsigned mask, Value value) {                                 \
        return emulator::vote(emulator::Collective::operation, mask, given);                  \
    }
EMULATOR_COLLECTIVE(int, __any_sync, any, int, value != 0)
EMULATOR_COLLECTIVE(int, __all_sync, all, int, value != 0)
EMULATOR_COLLECTIVE(unsigned, __ballot_sync, ballot, int, value != 0)
EMULATOR_COLLECTIVE(int, __reduce_add_sync, add, int, value)
EMULATOR_COLLECTIVE(unsigned, __reduce_add_sync, add, unsigned, value)
EMULATOR_COLLECTIVE(int, __reduce_min_sync, min_signed, int, value)
EMULATOR_COLLECTIVE(int, __reduce_max_sync, max_signed, int, value)
EMULATOR_COLLECTIVE(unsigned, __reduce_min_sync, min_unsigned, unsigned, value)
EMULATOR_COLLECTIVE(unsigned, __reduce_max_sync, max_unsigned, unsigned, value)
EMULATOR_COLLECTIVE(unsigned, __reduce_and_sync, bit_and, unsigned, value)
EMULATOR_COLLECTIVE(unsigned, __reduce_or_sync, bit_or, unsigned, value)
EMULATOR_COLLECTIVE(unsigned, __reduce_xor_sync, bit_xor, unsigned, value)
#undef EMULATOR_COLLECTIVE
template <class T>
EMULATOR_INLINE unsigned __match_any_sync(unsigned mask, T value) {
    return emulator::vote(emulator::Collective::match_any, mask, emulator::to_bits(value));
}
template <class T>
EMULATOR_INLINE unsigned __match_all_sync(unsigned mask, T value, int* all_equal) {
    unsigned lanes =
        emulator::vote(emulator::Collective::match_all, mask, emulator::to_bits(value));
    *all_equal = lanes != 0;
    return lanes;
}
