// Kernel launches. The rewriter turns `kernel<T><<<grid, block, bytes, stream>>>(a, b)` into
// `::emulator::configure(EMULATOR_NAME(kernel<T>), grid, block, bytes, stream).run(lambda, a, b)`.
#pragma once

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

// Which kernels, or instances of their templates, are compiled: all, unless build.py has written a
// specialization for `void`. A name has the template's arguments: `k() [with int N = 4]`, or so.
template <class> struct Instances {
    static constexpr bool has(const char*) { return true; }
};
constexpr uint64_t number_of(const char* name) {  // FNV-1a
    uint64_t number = 0xcbf29ce484222325;
    while (*name) number = (number ^ (unsigned char)*name++) * 0x100000001b3;
    return number;
}
constexpr bool contains(const char* name, const char* part) {
    for (;; ++name) {
        int same = 0;
        while (part[same] && name[same] == part[same]) ++same;
        if (!part[same] || !*name) return !part[same];
    }
}

// Stands where a kernel's body begins. Of an instance that is left out the compiler checks the rest,
// and then drops it: code is made of no more than the call that tells.
#define EMULATOR_KERNEL                                                                       \
    constexpr uint64_t emulator_number = ::emulator::number_of(__PRETTY_FUNCTION__);          \
    constexpr bool emulator_compiled = ::emulator::Instances<void>::has(__PRETTY_FUNCTION__); \
    emulator_begin_kernel(emulator_number, emulator_compiled);                                \
    if (!emulator_compiled) return

struct Configuration {
    Launch launch;

    // Inlined, so that the launch has the line of the source.
    template <class Kernel, class... Arguments>
    __attribute__((always_inline)) void run(Kernel kernel, Arguments... arguments) {
        // The arguments are evaluated once, on the host, and copied for each thread. A lambda
        // binds them: a tuple of them takes the compiler as long as the kernel.
        auto bound = [=] { kernel(arguments...); };
        launch.body = [](void* given) {
            asm volatile("" : : "r"(&shared_anchor));
            (*static_cast<decltype(bound)*>(given))();
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
             checked, false, {1, 1, 1}}};
}

// What __launch_bounds__ says, where the kernel's body begins.
template <class... Others>
inline __attribute__((always_inline)) void launch_bounds(unsigned most_threads, Others...) {
    emulator_launch_bounds(most_threads);
}
inline __attribute__((always_inline)) void cluster_dims(unsigned x, unsigned y = 1, unsigned z = 1) {
    emulator_cluster_dims(x, y, z);
}

// Stands after the declaration of a local variable without a value; see yaie/emulator/unset.py.
struct Unset {
    void* variable;
    ~Unset() { emulator_end_unset(variable); }
};
#ifdef __clang__  // which does not report stores to parts of a local variable
template <class T> constexpr bool reports_stores = std::is_scalar<T>::value;
#else
template <class T> constexpr bool reports_stores = true;
#endif
#define EMULATOR_UNSET(name)                                                                  \
    ::emulator::Unset emulator_unset_##name{(void*)&name};                                    \
    emulator_begin_unset((void*)&name, sizeof(name),                                          \
                         sizeof(std::remove_all_extents_t<decltype(name)>),                   \
                         ::emulator::reports_stores<decltype(name)> ? #name : nullptr)

// Memory for a `__shared__` variable, whose constructor is not called.
template <class T>
struct alignas(alignof(T)) Raw {
    unsigned char bytes[sizeof(T)];

    // The variable, at an address that the compiler must not recompute.
    inline __attribute__((always_inline)) T& once() {
        unsigned char* address = bytes + emulator_shared_shift();
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

// Shared memory in 32 bits: the dynamic part counts from 0, a `__shared__` variable from 1 GiB and 1 MiB
// on, relative to the file's thread-local segment. Bits 24 to 28 are 1 + the rank of the thread block
// in its cluster, or 0 for the running one.
constexpr uint32_t static_shared = (1u << 30) + (1u << 20);

// Not inlined: a kernel has many calls, which would use up what inlining may add to it.
__attribute__((noinline)) inline uint32_t to_shared(const void* pointer) {
    const ptrdiff_t dynamic = (const char*)pointer - (const char*)emulator_dynamic_shared();
    if (dynamic >= 0 && dynamic < 256 * 1024) return (uint32_t)dynamic;
    const ptrdiff_t fixed = (const char*)pointer - &shared_anchor - emulator_shared_shift();
    if (fixed >= -(1 << 20) && fixed < 1 << 20) return static_shared + (uint32_t)fixed;
    const uint32_t rank = emulator_shared_rank(pointer);
    const uint32_t own = emulator_shared_rank(emulator_dynamic_shared());
    if (rank == own) return static_shared + (uint32_t)fixed;
    return to_shared(emulator_map_shared(pointer, own)) | (rank + 1) << 24;
}
__attribute__((noinline)) inline void* from_shared(uint32_t address) {
    if (address < 256 * 1024) return (char*)emulator_dynamic_shared() + address;
    const uint32_t rank = address >> 24 & 31, local = address & ~(31u << 24);
    if (rank) return emulator_map_shared(from_shared(local), rank - 1);
    return &shared_anchor + emulator_shared_shift() + (int32_t)(address - static_shared);
}

// What mapa does; a rank past the cluster is a fault.
EMULATOR_INLINE uint32_t map_shared_address(uint32_t address, uint32_t rank) {
    return emulator_map_shared(from_shared(address), rank), (address & ~(31u << 24)) | (rank + 1) << 24;
}

// The running thread block in its cluster.
inline uint3 block_in_cluster() {
    const uint3 b = emulator_block_index(), c = emulator_cluster_dim();
    return {b.x % c.x, b.y % c.y, b.z % c.z};
}
inline uint32_t cluster_rank() {
    const uint3 b = block_in_cluster(), c = emulator_cluster_dim();
    return (b.z * c.y + b.y) * c.x + b.x;
}
inline uint32_t cluster_size() {
    const uint3 c = emulator_cluster_dim();
    return c.x * c.y * c.z;
}

}  // namespace emulator
