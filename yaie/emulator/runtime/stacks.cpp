#include "stacks.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if !defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
#define EMULATOR_UCONTEXT
#endif

#ifdef EMULATOR_UCONTEXT
#include <ucontext.h>
#endif

namespace emulator {

#ifndef EMULATOR_UCONTEXT

// By the ABI a callee preserves six registers and the stack pointer; nothing else must be saved.
extern "C" void emulator_switch(Context* from, Context to);
asm(R"(
    .text
    .globl emulator_switch
    .type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulator_switch, .-emulator_switch
)");

void switch_context(Context* from, Context to) { emulator_switch(from, to); }

Context Stacks::start(int stack, void (*function)()) {
    // Stacks that all start at one offset in a page would compete for a few sets of the L1 cache.
    char* top = low(stack) + bytes - (size_t)(stack % 32) * 128;
    void** slot = reinterpret_cast<void**>(top);
    *--slot = nullptr;  // in place of a caller's return address, for the alignment
    *--slot = reinterpret_cast<void*>(function);
    for (int i = 0; i < 6; ++i) *--slot = nullptr;  // the registers that emulator_switch pops
    return slot;
}

#else

void switch_context(Context* from, Context to) {
    ucontext_t here;
    *from = &here;
    swapcontext(&here, static_cast<ucontext_t*>(to));
}

Context Stacks::start(int stack, void (*function)()) {
    auto* context = static_cast<ucontext_t*>(contexts_[stack]);
    getcontext(context);
    context->uc_stack.ss_sp = low(stack);
    context->uc_stack.ss_size = bytes - (size_t)(stack % 32) * 128;
    context->uc_link = nullptr;
    makecontext(context, function, 0);
    return context;
}

#endif

Stacks::~Stacks() {
    if (memory_) munmap(memory_, 2 * stride * count_);
    for (void* context : contexts_) free(context);
}

void Stacks::reserve(int count) {
    if (count > count_) {
        if (memory_) munmap(memory_, 2 * stride * count_);
        void* memory = mmap(nullptr, 2 * stride * count, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            perror("emulator: no address space for the stacks");
            abort();
        }
        memory_ = static_cast<char*>(memory);
        count_ = count;
        for (int i = 0; i < count; ++i) mprotect(low(i), bytes, PROT_READ | PROT_WRITE);
        mprotect(memory_ + stride * count, stride * count, PROT_READ | PROT_WRITE);
#ifdef EMULATOR_UCONTEXT
        while ((int)contexts_.size() < count) contexts_.push_back(malloc(sizeof(ucontext_t)));
#endif
    }
    if ((int)free_.size() == count_) return;
    free_.clear();
    for (int i = count_ - 1; i >= 0; --i) free_.push_back(i);
}

int Stacks::take() {
    int stack = free_.back();
    free_.pop_back();
    return stack;
}

bool Stacks::in_guard(const void* address) const {
    size_t offset = (uintptr_t)address - (uintptr_t)memory_;
    return memory_ && offset < stride * count_ && offset % stride < guard;
}

}  // namespace emulator
