// A call of a launcher from Python, out of which a signal handler can return; and the code in which
// a handler may do so.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <vector>

#include "failure.h"

namespace emulator {

Code code_around(const void* instruction);

struct Module {  // where a compiled file is in memory
    struct Segment {
        uintptr_t begin, end;
        bool writable, executable;
    };
    uintptr_t code = 0;
    std::vector<Segment> segments;
    uintptr_t shared = 0;  // its thread-local segment, of this OS thread
    size_t shared_size = 0;
};
Module module_around(const void* instruction);

bool main_in_call();  // whether Python's main thread is between emulator_begin and emulator_end
// Whether this OS thread is in a launcher, of which no kernel runs.
bool in_launcher();
Code launcher_code();
void launching(bool begins);  // the launcher runs a kernel, or does so no more
[[noreturn]] void abandon_call(Failure failure);

// Keeps the failure and ends the kernel or, where none runs, the launcher.
[[noreturn]] void fail_here(Failure failure);

// Has the interrupted thread of a kernel call Core::preempt before it goes on.
void preempt_at(void* context);

}  // namespace emulator
