// Atomics. Thread blocks run on several cores, so these are the CPU's own atomics.
#pragma once

#include <string.h>

#include "warp.h"

namespace emulator {

template <size_t size> struct Word;
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = unsigned long long; };

#ifdef __clang__
#define EMULATOR_UNSEEN __attribute__((disable_sanitizer_instrumentation))
#else
#define EMULATOR_UNSEEN __attribute__((no_sanitize("thread")))
#endif

// Replaces *address by update(*address) and returns the old value. Neither inlined nor
// instrumented, so that the checker receives it once, as an atomic, from the caller's line.
template <class T, class Update>
__attribute__((noinline)) EMULATOR_UNSEEN T atomic_update(T* address, Update update) {
    using Bits = typename Word<sizeof(T)>::type;
#ifdef EMULATOR_CHECKED
    emulator_note_atomic(address, sizeof(T), __builtin_return_address(0));
#endif
    Bits* place = reinterpret_cast<Bits*>(address);
    Bits seen = __atomic_load_n(place, __ATOMIC_RELAXED);
    for (;;) {
        T old, changed;
        memcpy(&old, &seen, sizeof(T));
        changed = update(old);
        Bits wanted;
        memcpy(&wanted, &changed, sizeof(T));
        if (__atomic_compare_exchange_n(place, &seen, wanted, true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
            return old;
        }
    }
}

template <class T> struct Same { using type = T; };

}  // namespace emulator

// The type of the value follows from the pointer, so that atomicAdd(&counter, 1) compiles.
#define EMULATOR_ATOMIC(name, expression)                                                     \
    template <class T>                                                                        \
    EMULATOR_INLINE T name(T* address, typename emulator::Same<T>::type value) {              \
        return emulator::atomic_update(address, [=](T old) -> T { return expression; });      \
    }                                                                                         \
    template <class T>                                                                        \
    EMULATOR_INLINE T name##_block(T* address, typename emulator::Same<T>::type value) {      \
        return name(address, value);                                                          \
    }

EMULATOR_ATOMIC(atomicAdd, old + value)
EMULATOR_ATOMIC(atomicSub, old - value)
EMULATOR_ATOMIC(atomicExch, ((void)old, value))
EMULATOR_ATOMIC(atomicMin, value < old ? value : old)
EMULATOR_ATOMIC(atomicMax, old < value ? value : old)
EMULATOR_ATOMIC(atomicAnd, old & value)
EMULATOR_ATOMIC(atomicOr, old | value)
EMULATOR_ATOMIC(atomicXor, old ^ value)
EMULATOR_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
EMULATOR_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef EMULATOR_ATOMIC

template <class T>
EMULATOR_INLINE T atomicCAS(T* address, typename emulator::Same<T>::type compare,
                            typename emulator::Same<T>::type value) {
    return emulator::atomic_update(address, [=](T old) -> T {
        return memcmp(&old, &compare, sizeof(T)) == 0 ? value : old;
    });
}
