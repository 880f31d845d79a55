// What went wrong, as the checker and the runtime report it to Python.
#pragma once

#include <stdint.h>

#include "core.h"

namespace emulator {

// Python has the same list: yaie/emulator/runtime.py.
enum class Kind : int {
    out_of_bounds, misaligned, race, uninitialized, divergent_barrier, deadlock, inactive_lane,
    wrong_mask, divergent_collective, segmentation_fault, stack_overflow, division, time_limit,
    assertion, trap, pending_copy, conversion, shift, same_value,
};

enum class Memory : int { none, global, shared, module };
enum class Access : int { load, store, atomic };

struct Failure {
    Kind kind;
    int error;  // the cudaError_t that the launcher sees
    const void* site;        // return address: the instruction after the access or call
    const void* other_site;
    uint3 block, thread, other_block, other_thread;
    Memory memory;
    Access access, other_access;
    int size;        // bytes
    int range;       // id of one of the checker's ranges, or -1
    int64_t offset;  // from the start of the range; for kinds about a lane, the lane
    uint64_t address;
    uint64_t count;  // occurrences
    char text[256];  // an assertion's expression
};

// Keeps the first failure of the launch, stops all cores, and never returns.
[[noreturn]] void fail(Core& core, Failure failure);

// The signal stack and the time limit of one launch on one thread.
class Watch {
  public:
    explicit Watch(double seconds);
    ~Watch();
    Watch(const Watch&) = delete;
};

// Installs the fault handlers for a launch, and restores the previous ones afterwards.
class Handlers {
  public:
    Handlers();
    ~Handlers();
    Handlers(const Handlers&) = delete;
};

}  // namespace emulator
