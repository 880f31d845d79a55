// The functions that code compiled with -fsanitize=thread calls before each load and store. They
// replace the sanitizer's own library, which is not linked.
#include <math.h>
#include <string.h>

#include "calls.h"
#include "checker.h"

using namespace emulator;

namespace {

constexpr size_t least_room = 4096;  // bytes of stack that the checker needs

inline void report(void* address, size_t size, Access kind, const void* site,
                   Manner manner = Manner::plain) {
    Core* core = this_core;
    if (!core && observer && in_launcher()) {
        checker.host_access(reinterpret_cast<uintptr_t>(address), size, kind, site);
    }
    if (!core || !core->checking || !core->current) return;
    if (core->attention) core->attend(site);
    if (core->room(__builtin_frame_address(0)) < least_room) {
        core->busy = 0;
        core->stop(Kind::stack_overflow, site);
    }
    checker.access(*core, reinterpret_cast<uintptr_t>(address), size, kind, site, manner);
}

// A thread that reads a volatile address again waits for another thread, which may run first. So may
// others before one in two threads writes where it has read: then their updates are lost, several of
// them, so that the value tells.
void report_volatile(void* address, size_t size, Access kind, const void* site) {
    Core* core = this_core;
    if (core && core->checking && core->current) {
        const Thread& me = *core->current;
        const bool updates = kind != Access::load && me.polled == address;
        const bool delayed = updates && (me.linear ^ me.linear >> 5) & 1;
        for (int i = kind == Access::load ? 1 : delayed ? 8 : 0; i > 0; --i) core->poll(address, site);
        if (kind == Access::store && core->async.order() == Order::random) core->poll(nullptr, site);
    }
    report(address, size, kind, site, Manner::is_volatile);
}

template <class... Places>
void report_stores(const void* site, Places*... places) {
    (report(places, sizeof(Places), Access::store, site), ...);
}

}  // namespace

#define HOOK(name, report, size, kind)                                                        \
    extern "C" void name(void* address) {                                                     \
        report(address, size, kind, __builtin_return_address(0));                             \
    }
#define HOOKS(size)                                                                           \
    HOOK(__tsan_read##size, report, size, Access::load)                                       \
    HOOK(__tsan_write##size, report, size, Access::store)                                     \
    HOOK(__tsan_unaligned_read##size, report, size, Access::load)                             \
    HOOK(__tsan_unaligned_write##size, report, size, Access::store)                           \
    HOOK(__tsan_volatile_read##size, report_volatile, size, Access::load)                     \
    HOOK(__tsan_volatile_write##size, report_volatile, size, Access::store)                   \
    HOOK(__tsan_unaligned_volatile_read##size, report_volatile, size, Access::load)           \
    HOOK(__tsan_unaligned_volatile_write##size, report_volatile, size, Access::store)

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

extern "C" {
void emulator_note_atomic(void* address, size_t size, int compares, const void* site) {
    report(address, size, Access::atomic, site, compares ? Manner::comparing : Manner::plain);
}
void emulator_note_atomic_store(void* address, size_t size, const void* site) {
    report(address, size, Access::atomic, site, Manner::storing);
}
void __tsan_read_range(void* address, size_t size) {
    report(address, size, Access::load, __builtin_return_address(0));
}
void __tsan_write_range(void* address, size_t size) {
    report(address, size, Access::store, __builtin_return_address(0));
}
// clang's, for a struct that is copied as a whole; the rewriter puts them in place of calls, since g++
// would replace those by stores that it does not report.
#define COPY(name)                                                                            \
    void* name(void* to, const void* from, size_t size) {                                     \
        report(const_cast<void*>(from), size, Access::load, __builtin_return_address(0));     \
        report(to, size, Access::store, __builtin_return_address(0));                         \
        return memmove(to, from, size);                                                       \
    }
COPY(__tsan_memcpy)
COPY(__tsan_memmove)
void* __tsan_memset(void* to, int value, size_t size) {
    report(to, size, Access::store, __builtin_return_address(0));
    return memset(to, value, size);
}
// The linker gives calls of the C library's functions these names.
#define STORING(T, function, parameters, arguments, ...)                                      \
    T __wrap_##function parameters {                                                          \
        report_stores(__builtin_return_address(0), __VA_ARGS__);                              \
        return function arguments;                                                            \
    }
STORING(float, modff, (float x, float* whole), (x, whole), whole)
STORING(double, modf, (double x, double* whole), (x, whole), whole)
STORING(float, frexpf, (float x, int* exponent), (x, exponent), exponent)
STORING(double, frexp, (double x, int* exponent), (x, exponent), exponent)
STORING(float, remquof, (float x, float y, int* times), (x, y, times), times)
STORING(double, remquo, (double x, double y, int* times), (x, y, times), times)
STORING(void, sincosf, (float x, float* sine, float* cosine), (x, sine, cosine), sine, cosine)
STORING(void, sincos, (double x, double* sine, double* cosine), (x, sine, cosine), sine, cosine)
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
