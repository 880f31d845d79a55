// Kernel launches. The rewriter turns `kernel<T><<<grid, block, bytes, stream>>>(a, b)` into
// `::emulator::configure(EMULATOR_NAME(kernel<T>), grid, block, bytes, stream).run(lambda, a, b)`.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "vector_types.h"

typedef struct CUstream_st* cudaStream_t;

// Two steps, so that a macro parameter expands to the kernel's own name.
#define EMULATOR_NAME(...) EMULATOR_QUOTE(__VA_ARGS__)
#define EMULATOR_QUOTE(...) #__VA_ARGS__

namespace emulator {

// Gives this file a thread-local segment even if it has no `__shared__` array, and makes the
// dynamic linker allocate the segment before the runtime looks for it.
namespace {
thread_local char shared_anchor __attribute__((used));
const char this_file = 0;
}

struct Configuration {
    Launch launch;

    template <class Kernel, class... Arguments>
    void run(Kernel kernel, Arguments... arguments) {
        // The arguments are evaluated once, on the host, and copied for each thread.
        struct Bound {
            Kernel kernel;
            std::tuple<Arguments...> arguments;
        } bound{kernel, {arguments...}};
        launch.body = [](void* bound) {
            asm volatile("" : : "r"(&shared_anchor));
            auto* call = static_cast<Bound*>(bound);
            std::apply(call->kernel, call->arguments);
        };
        launch.arguments = &bound;
        launch.arguments_size = sizeof(bound);
        asm volatile("" : : "r"(&shared_anchor));
        emulator_launch(&launch);
    }
};

inline Configuration configure(const char* name, dim3 grid, dim3 thread_block,
                               size_t shared_bytes = 0, cudaStream_t = nullptr) {
#ifdef EMULATOR_CHECKED
    const bool checked = true;
#else
    const bool checked = false;
#endif
    return {{grid, thread_block, shared_bytes, nullptr, nullptr, 0, &this_file, name,
             checked, false}};
}

// What __launch_bounds__ says, where the kernel's body begins.
template <class... Others>
inline __attribute__((always_inline)) void launch_bounds(unsigned most_threads, Others...) {
    emulator_launch_bounds(most_threads);
}

// Stands after the declaration of a local variable without a value; see yaie/emulator/unset.py.
struct Unset {
    void* variable;
    ~Unset() { emulator_end_unset(variable); }
};
#define EMULATOR_UNSET(name)                                                                  \
    ::emulator::Unset emulator_unset_##name{(void*)&name};                                    \
    emulator_begin_unset((void*)&name, sizeof(name),                                          \
                         sizeof(std::remove_all_extents_t<decltype(name)>), #name)

// Memory for a `__shared__` variable, whose constructor is not called.
template <class T>
struct alignas(alignof(T)) Raw {
    unsigned char bytes[sizeof(T)];

    // The variable, at an address that the compiler must not recompute.
    inline __attribute__((always_inline)) T& once() {
        unsigned char* address = bytes;
        asm("" : "+r"(address));
        return reinterpret_cast<T&>(*address);
    }
};

// In checked mode as many bytes follow that are no variable's, so that an index past the end does
// not hit the next variable.
template <class T>
struct Guarded : Raw<T> {
#ifdef EMULATOR_CHECKED
    unsigned char guard[sizeof(T)];
#endif
};

// An `extern __shared__` array outside any function; inside one it is a plain pointer.
template <class T>
struct DynamicShared {
    operator T*() const { return static_cast<T*>(emulator_dynamic_shared()); }
    template <class U>
    explicit operator U*() const {
        return static_cast<U*>(emulator_dynamic_shared());
    }
};

// Shared memory in 32 bits: the dynamic part counts from 0, a `__shared__` variable from 1 GiB on,
// relative to the file's thread-local segment.
constexpr uint32_t static_shared = 1u << 30;

inline uint32_t to_shared(const void* pointer) {
    const ptrdiff_t dynamic = (const char*)pointer - (const char*)emulator_dynamic_shared();
    if (dynamic >= 0 && dynamic < 256 * 1024) return (uint32_t)dynamic;
    return static_shared + (uint32_t)((const char*)pointer - &shared_anchor);
}
inline void* from_shared(uint32_t address) {
    if (address < 256 * 1024) return (char*)emulator_dynamic_shared() + address;
    return &shared_anchor + (int32_t)(address - static_shared);
}

}  // namespace emulator
