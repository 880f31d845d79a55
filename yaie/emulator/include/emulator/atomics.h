// Atomics. Thread blocks run on several cores, so these are the CPU's own atomics.
#pragma once

#include <string.h>

#include <type_traits>

#include "warp.h"

namespace emulator {

template <size_t size> struct Word;
template <> struct Word<1> { using type = unsigned char; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = unsigned long long; };

#ifdef __clang__
#define EMULATOR_UNSEEN __attribute__((disable_sanitizer_instrumentation))
#else
#define EMULATOR_UNSEEN __attribute__((no_sanitize("thread")))
#endif

// Replaces *address by update(*address) and returns the old value. Neither inlined nor
// instrumented, so that the checker receives it once, as an atomic, from the caller's line. A thread
// that changes nothing, twice, waits for another one; in checked mode others run after each swap: it
// may take a lock, and what does not keep them out is to show.
enum class Swap { none, always, if_equal };
template <Swap swap = Swap::none, class T, class Update>
__attribute__((noinline)) EMULATOR_UNSEEN T atomic_update(T* address, Update update) {
    using Bits = typename Word<sizeof(T)>::type;
    const void* site = __builtin_return_address(0);
#ifdef EMULATOR_CHECKED
    const bool yields = swap != Swap::none;
    emulator_note_atomic(address, sizeof(T), swap == Swap::if_equal, site);
#else
    const bool yields = false;
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
            if (yields || wanted == seen) emulator_poll(yields ? nullptr : address, site);
            return old;
        }
    }
}

// The same without reading.
template <class T>
__attribute__((noinline)) EMULATOR_UNSEEN void atomic_store(T* address, T value) {
    using Bits = typename Word<sizeof(T)>::type;
#ifdef EMULATOR_CHECKED
    emulator_note_atomic_store(address, sizeof(T), __builtin_return_address(0));
#endif
    Bits bits;
    memcpy(&bits, &value, sizeof(T));
    __atomic_store_n(reinterpret_cast<Bits*>(address), bits, __ATOMIC_SEQ_CST);
}

// Reads alone; inlined, since the checker knows a volatile load by the caller's line. A thread that
// asks again lets others run: in checked mode by the load itself.
template <class T>
EMULATOR_INLINE T atomic_load(const T* address) {
    using Bits = typename Word<sizeof(T)>::type;
    const Bits bits = *reinterpret_cast<const volatile Bits*>(address);
#ifndef EMULATOR_CHECKED
    emulator_poll(address, nullptr);
#endif
    return from_bits<T>(bits);
}

template <class T> struct Same { using type = T; };
template <class T, class... Types>
constexpr bool is_any_of = (std::is_same<T, Types>::value || ...);

}  // namespace emulator

// The type of the value follows from the pointer, so that atomicAdd(&counter, 1) compiles. For other
// types than a GPU's there is a declaration that the compiler refuses, with a sentence.
#define EMULATOR_REFUSE(name, allowed, words)                                                 \
    template <class T, class... Values, std::enable_if_t<!(allowed), int> = 0>                \
    __attribute__((error(#name " takes a pointer to " words))) T name(T* address, Values...);
#define EMULATOR_ATOMIC(name, allowed, words, expression, ...)                                \
    template <class T, std::enable_if_t<(allowed), int> = 0>                                  \
    EMULATOR_INLINE T name(T* address, typename emulator::Same<T>::type value) {              \
        return emulator::atomic_update<__VA_ARGS__>(                                          \
            address, [=](T old) EMULATOR_UNSEEN -> T { return expression; });                 \
    }                                                                                         \
    template <class T>                                                                        \
    EMULATOR_INLINE T name##_block(T* address, typename emulator::Same<T>::type value) {      \
        return name(address, value);                                                          \
    }                                                                                         \
    template <class T>                                                                        \
    EMULATOR_INLINE T name##_system(T* address, typename emulator::Same<T>::type value) {     \
        return name(address, value);                                                          \
    }                                                                                         \
    EMULATOR_REFUSE(name, allowed, words)
#define EMULATOR_32 int, unsigned int
#define EMULATOR_IS(...) (emulator::is_any_of<T, __VA_ARGS__>)
#define EMULATOR_BITS EMULATOR_IS(EMULATOR_32, unsigned long long)
#define EMULATOR_WHOLE EMULATOR_IS(EMULATOR_32, unsigned long long, long long)
#define EMULATOR_WORDS "int, unsigned int or unsigned long long"

EMULATOR_ATOMIC(atomicAdd, (EMULATOR_BITS || !std::is_integral<T>::value),
                EMULATOR_WORDS ", float, double or 16-bit numbers", old + value)
EMULATOR_ATOMIC(atomicSub, EMULATOR_IS(EMULATOR_32), "int or unsigned int", old - value)
EMULATOR_ATOMIC(atomicExch, EMULATOR_IS(EMULATOR_32, unsigned long long, float), EMULATOR_WORDS " or float",
                ((void)old, value), emulator::Swap::always)
EMULATOR_ATOMIC(atomicMin, EMULATOR_WHOLE, EMULATOR_WORDS " or long long; there is none for float",
                value < old ? value : old)
EMULATOR_ATOMIC(atomicMax, EMULATOR_WHOLE, EMULATOR_WORDS " or long long; there is none for float",
                old < value ? value : old)
EMULATOR_ATOMIC(atomicAnd, EMULATOR_BITS, EMULATOR_WORDS, old & value)
EMULATOR_ATOMIC(atomicOr, EMULATOR_BITS, EMULATOR_WORDS, old | value)
EMULATOR_ATOMIC(atomicXor, EMULATOR_BITS, EMULATOR_WORDS, old ^ value)
EMULATOR_ATOMIC(atomicInc, EMULATOR_IS(unsigned int), "unsigned int", old >= value ? 0 : old + 1)
EMULATOR_ATOMIC(atomicDec, EMULATOR_IS(unsigned int), "unsigned int",
                old == 0 || old > value ? value : old - 1)

EMULATOR_REFUSE(atomicCAS, (EMULATOR_BITS || EMULATOR_IS(unsigned short)),
                EMULATOR_WORDS " or unsigned short")
template <class T, std::enable_if_t<EMULATOR_BITS || EMULATOR_IS(unsigned short), int> = 0>
EMULATOR_INLINE T atomicCAS(T* address, typename emulator::Same<T>::type compare,
                            typename emulator::Same<T>::type value) {
    return emulator::atomic_update<emulator::Swap::if_equal>(
        address, [=](T old) EMULATOR_UNSEEN -> T { return old == compare ? value : old; });
}
#undef EMULATOR_ATOMIC
#undef EMULATOR_REFUSE
