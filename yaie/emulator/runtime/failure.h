// What went wrong, as both the checker and the runtime tell it to Python.
#pragma once

#include <stdint.h>

#include "core.h"

namespace emulator {

// Python has the same list: yaie/emulator/runtime.py.
enum class Kind : int {
    out_of_bounds, misaligned, race, uninitialized, divergent_barrier, deadlock, inactive_lane,
    wrong_mask, divergent_collective, segmentation_fault, stack_overflow, division, time_limit,
    assertion, trap,
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
    int range;       // of the checker's ranges, or -1
    int64_t offset;  // from the range's beginning; a lane for kinds that speak of one
    uint64_t address;
    uint64_t count;  // how often
    char text[256];  // an assertion's expression
};

// Keeps the first failure of the launch, stops all cores, and never returns.
[[noreturn]] void fail(Core& core, Failure failure);

// The signals by which the CPU tells of a fault, and a time limit, for one launch on one thread.
class Watch {
  public:
    explicit Watch(double seconds);
    ~Watch();
    Watch(const Watch&) = delete;
};

// Installs the handlers of faults for a launch and puts back what was there.
class Handlers {
  public:
    Handlers();
    ~Handlers();
    Handlers(const Handlers&) = delete;
};

}  // namespace emulator
