#include "calls.h"

#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "grid.h"

namespace emulator {
namespace {

thread_local bool calling = false;  // between emulator_begin and emulator_end
bool runs_kernel = false;           // one call at a time
volatile sig_atomic_t main_calls = false;  // that call is the main thread's
Code code;

int visit_module(dl_phdr_info* info, size_t, void* data) {
    auto* module = static_cast<Module*>(data);
    Module found = {module->code, {}, 0, 0};
    bool holds = false;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + header.p_vaddr, end = begin + header.p_memsz;
        if (header.p_type == PT_LOAD) {
            holds |= module->code >= begin && module->code < end;
            found.segments.push_back({begin, end, (header.p_flags & PF_W) != 0,
                                      (header.p_flags & PF_X) != 0});
        } else if (header.p_type == PT_TLS) {
            found.shared = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
            found.shared_size = header.p_memsz;
        }
    }
    if (holds) *module = found;
    return holds;
}

}  // namespace

Code code_around(const void* instruction) {
    static thread_local Code last;
    if (last.holds(instruction)) return last;
    last = {};
    for (const Module::Segment& one : module_around(instruction).segments) {
        const Code code = {reinterpret_cast<char*>(one.begin), reinterpret_cast<char*>(one.end)};
        if (one.executable && code.holds(instruction)) last = code;
    }
    return last;
}

Module module_around(const void* instruction) {
    Module module;
    module.code = reinterpret_cast<uintptr_t>(instruction);
    dl_iterate_phdr(visit_module, &module);
    return module;
}

bool main_in_call() { return main_calls; }
bool in_launcher() { return calling && !runs_kernel; }
Code launcher_code() { return code; }
void launching(bool begins) { runs_kernel = begins; }

void fail_here(Failure failure) {
    if (this_core && this_core->running()) {
        fail(*this_core, failure.of(*this_core->current));
    }
    if (in_launcher()) abandon_call(failure);
    fprintf(stderr, "emulator: %s\n", failure.text);
    abort();
}

}  // namespace emulator

using namespace emulator;

#if defined(__x86_64__)

// emulator_call passes its arguments on to a launcher: it puts its own return address in place of
// its caller's, which it keeps with the registers that a function preserves. So emulator_abandon
// can return from emulator_call, wherever the launcher is.
//
// emulator_preempted runs on the stack of a kernel's thread as if the interrupted instruction had
// called it, below the 128 bytes that the ABI lets functions use without asking. It preserves all
// registers; a kernel has no vectors wider than 16 bytes.
extern "C" {
struct {
    uint64_t registers[6], caller, stack;
    const void* target;
} emulator_saved __attribute__((visibility("hidden")));
int emulator_call(...);
[[noreturn]] __attribute__((visibility("hidden"))) void emulator_abandon(int error);
__attribute__((visibility("hidden"))) void emulator_preempted();
__attribute__((visibility("hidden"), used)) void emulator_preempt() { this_core->preempt(); }
}
asm(R"(
    .text
    .globl emulator_call
    .type emulator_call, @function
emulator_call:
    leaq emulator_saved(%rip), %r11
    movq %rbx, (%r11)
    movq %rbp, 8(%r11)
    movq %r12, 16(%r11)
    movq %r13, 24(%r11)
    movq %r14, 32(%r11)
    movq %r15, 40(%r11)
    popq 48(%r11)
    movq %rsp, 56(%r11)
    call *64(%r11)
1:  leaq emulator_saved(%rip), %r11
    pushq 48(%r11)
    ret
    .size emulator_call, .-emulator_call

    .hidden emulator_abandon
    .globl emulator_abandon
    .type emulator_abandon, @function
emulator_abandon:
    movl %edi, %eax
    leaq emulator_saved(%rip), %r11
    movq (%r11), %rbx
    movq 8(%r11), %rbp
    movq 16(%r11), %r12
    movq 24(%r11), %r13
    movq 32(%r11), %r14
    movq 40(%r11), %r15
    movq 56(%r11), %rsp
    cld
    jmp 1b
    .size emulator_abandon, .-emulator_abandon

    .hidden emulator_preempted
    .globl emulator_preempted
    .type emulator_preempted, @function
emulator_preempted:
    pushfq
    pushq %rax
    pushq %rbx
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %rbp
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, %rbp
    subq $512, %rsp
    andq $-16, %rsp
    fxsave64 (%rsp)
    cld
    call emulator_preempt
    fxrstor64 (%rsp)
    movq %rbp, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rbp
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rbx
    popq %rax
    popfq
    ret $128
    .size emulator_preempted, .-emulator_preempted
)");

namespace emulator {

void abandon_call(Failure failure) {
    if (failure.count == 0) failure.count = 1;
    grid_failed(failure);
    emulator_abandon(failure.error);
}

void preempt_at(void* context) {
    auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const auto top = (uintptr_t)registers[REG_RSP] - 128 - sizeof(void*);
    if (this_core->room(reinterpret_cast<void*>(top)) < 4096) return;
    *reinterpret_cast<greg_t*>(top) = registers[REG_RIP];
    registers[REG_RSP] = (greg_t)top;
    registers[REG_RIP] = (greg_t)emulator_preempted;
}

}  // namespace emulator

#else  // a fault of a launcher is Python's, and a thread that waits in a loop waits for ever

namespace emulator {
void abandon_call(Failure) { abort(); }
void preempt_at(void*) {}
}  // namespace emulator

#endif

extern "C" {

// For Python: clears errors, watches this OS thread until emulator_end, and returns the address at
// which the launcher is to be called.
const void* emulator_begin(const void* launcher) {
    forget_errors();
    code = code_around(launcher);
    watch_call(true);
    calling = true;
    main_calls = getpid() == syscall(SYS_gettid);
#if defined(__x86_64__)
    emulator_saved.target = launcher;
    return reinterpret_cast<const void*>(emulator_call);
#else
    calling = main_calls = false;
    return launcher;
#endif
}

void emulator_end() {
    calling = main_calls = false;
    watch_call(false);
}

// Launchers call this in place of exit(), which would end Python.
void __wrap_exit(int status) {
    Failure failure = failure_at(Kind::launcher_fault, 719, __builtin_return_address(0));
    snprintf(failure.text, sizeof(failure.text), "exit(%d) was called", status);
    fail_here(failure);
}

// What g++ has a function call at whose end a `return` is missing (-fsanitize=return).
void __ubsan_handle_missing_return(const void*) {
    fail_here(failure_at(Kind::missing_return, 719, __builtin_return_address(0))
                  .says("a function ended without return"));
}

// Called before a division of integers by 0, or one that overflows, where the processor reports
// neither (-fsanitize=integer-divide-by-zero). An overflow gives what it gives on a GPU.
void __ubsan_handle_divrem_overflow(const void*, uintptr_t, uintptr_t by) {
    if (by) return;
    const Kind kind = this_core && this_core->running() ? Kind::division : Kind::launcher_fault;
    fail_here(failure_at(kind, 719, __builtin_return_address(0)).says("integer division by zero"));
}
}
