// What a checked build of C++ for the CPU calls before each load and store, and when it crashes.
//
// The compiler inserts the calls (-fsanitize=kernel-address, with calls in place of shadow memory).
// The arguments of the watched call lie in one arena, far apart: an address of the arena that is in
// none of them is a fault. Addresses elsewhere, of local variables and of the heap, are not looked at.
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

// Where this library's code begins and ends; the linker defines these symbols.
extern "C" char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" char etext[] __attribute__((visibility("hidden")));

namespace {
constexpr int MOST = 16;  // arguments
struct Argument {
    uint64_t begin, end, loads, loaded, stores, stored;  // addresses; counts and bytes
};
struct Fault {
    uint64_t kind, site, address, size;  // kind 1: a load, 2: a store, else 100 + a signal
};
struct Watch {
    uint64_t begin, end, count;  // of the arena, and the number of arguments
    Argument arguments[MOST];
    Fault fault;
} watch;
uint64_t calls = 1;         // that were watched, and the one that is
thread_local uint64_t own;  // the call in which this thread made its latest access
struct Abandoned {          // a call that did not end, and its arena
    uint64_t call, begin, end;
    const Abandoned* before;
}* abandoned;

[[noreturn]] void sleep_for_ever() {
    for (;;) pause();
}

// Whether a thread works for a call that was abandoned. A pool's threads work for one call after another.
bool is_abandoned(uint64_t address, uint64_t call) {
    for (const Abandoned* one = abandoned; one; one = one->before) {
        if (one->call == call || (address >= one->begin && address < one->end)) return true;
    }
    return false;
}

void note(uint64_t kind, uint64_t site, uint64_t address, uint64_t size) {
    uint64_t none = 0;
    if (!__atomic_compare_exchange_n(&watch.fault.kind, &none, kind, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
        return;  // the first one counts
    watch.fault.site = site;
    watch.fault.address = address;
    watch.fault.size = size;
}

void access(const void* at, size_t size, bool is_store, void* site) {
    const uint64_t now = __atomic_load_n(&calls, __ATOMIC_RELAXED);
    uint64_t address = (uint64_t)at;
    const bool elsewhere = address + size <= watch.begin || address >= watch.end;
    if (abandoned && (elsewhere || own != now) && is_abandoned(address, own)) sleep_for_ever();
    own = now;
    if (elsewhere || !size) return;
    for (uint64_t i = 0; i < watch.count; ++i) {
        Argument& argument = watch.arguments[i];
        if (address < argument.begin || address + size > argument.end) continue;
        __atomic_fetch_add(is_store ? &argument.stores : &argument.loads, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(is_store ? &argument.stored : &argument.loaded, size, __ATOMIC_RELAXED);
        return;
    }
    note(is_store ? 2 : 1, (uint64_t)site, address, size);
}

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction before[NSIG];  // what happened at a signal before this call

uint64_t site_of(const void* context) {
    auto& machine = ((const ucontext_t*)context)->uc_mcontext;
#if defined(__x86_64__)
    return machine.gregs[REG_RIP] + 1;
#elif defined(__aarch64__)
    return machine.pc + 4;
#else
    return (uint64_t)&machine & 0;
#endif
}

// To a thread that is abandoned, see native.py. One that is elsewhere, perhaps on its way back into
// Python, sleeps at its next access.
void left(int, siginfo_t*, void* context) {
    const uint64_t site = site_of(context);
    if (site >= (uint64_t)__ehdr_start && site < (uint64_t)etext) sleep_for_ever();
}

// The thread that crashed sleeps for ever; the one that waits for it sees the fault.
void crashed(int number, siginfo_t* info, void* context) {
    note(100 + number, site_of(context), (uint64_t)info->si_addr, 0);
    sleep_for_ever();
}
}  // namespace

extern "C" __attribute__((visibility("default"))) Watch* watch_calls() {
    struct sigaction action = {};
    action.sa_sigaction = crashed;
    action.sa_flags = SA_SIGINFO;
    for (int number : SIGNALS) sigaction(number, &action, &before[number]);
    action.sa_sigaction = left;
    action.sa_flags |= SA_RESTART;
    sigaction(SIGRTMIN + 7, &action, nullptr);
    return &watch;
}

extern "C" __attribute__((visibility("default"))) void watch_no_more(bool is_left) {
    if (is_left) abandoned = new Abandoned{calls, watch.begin, watch.end, abandoned};
    ++calls;
    watch.begin = watch.end = watch.count = 0;
    for (int number : SIGNALS) sigaction(number, &before[number], nullptr);
}

#define HOOK(name, is_store, size) \
    void name(const void* at) { access(at, size, is_store, __builtin_return_address(0)); }
#define HOOKS(size)                              \
    HOOK(__asan_load##size##_noabort, false, size) \
    HOOK(__asan_store##size##_noabort, true, size)
extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __asan_loadN_noabort(const void* at, size_t size) {
    access(at, size, false, __builtin_return_address(0));
}
void __asan_storeN_noabort(const void* at, size_t size) {
    access(at, size, true, __builtin_return_address(0));
}
void __asan_handle_no_return() {}
// The compiler does not look into these.
void* memcpy(void* to, const void* from, size_t size) noexcept {
    access(from, size, false, __builtin_return_address(0));
    access(to, size, true, __builtin_return_address(0));
    return memmove(to, from, size);
}
void* __asan_memcpy(void* to, const void* from, size_t size) { return memcpy(to, from, size); }
void* __asan_memmove(void* to, const void* from, size_t size) { return memcpy(to, from, size); }
void* __asan_memset(void* to, int value, size_t size) {
    access(to, size, true, __builtin_return_address(0));
    return memset(to, value, size);
}
}
