// Stacks for the threads of a kernel, and the few instructions that switch between them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace emulator {

// A suspended flow of control: on x86-64 its stack pointer, elsewhere a ucontext_t.
using Context = void*;

// Suspends the current flow of control, stores it in `from`, and resumes `to`.
void switch_context(Context* from, Context to);

class Stacks {
  public:
    static constexpr size_t bytes = 128 * 1024;

    ~Stacks();
    void reserve(int count);             // creates at least `count` stacks, all free
    int take();                          // returns the number of a free stack
    void give(int stack) { free_.push_back(stack); }
    Context start(int stack, void (*function)());  // a flow that will call the function once
    // The lowest usable address.
    char* low(int stack) const { return memory_ + stride * stack + guard; }
    bool holds(int stack, const void* address) const {
        return (size_t)((uintptr_t)address - (uintptr_t)low(stack)) < bytes;
    }
    bool in_guard(const void* address) const;  // just below one of the stacks
    // Of each byte of a stack, another one; they are 0 unless they are written.
    unsigned char* marks(const void* address) const {
        return (unsigned char*)address + stride * count_;
    }

  private:
    static constexpr size_t guard = 4096 * 4;  // inaccessible, so that an overflow faults
    static constexpr size_t stride = bytes + guard;

    char* memory_ = nullptr;
    int count_ = 0;
    std::vector<int> free_;
    std::vector<void*> contexts_;
};

}  // namespace emulator
