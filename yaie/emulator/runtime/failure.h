// What went wrong, as the checker and the runtime report it to Python.
#pragma once

#include <stdint.h>
#include <string.h>

#include "core.h"

namespace emulator {

// Python has the same list: yaie/emulator/runtime.py.
enum class Kind : int {
    out_of_bounds, misaligned, race, uninitialized, divergent_barrier, deadlock, inactive_lane,
    wrong_mask, divergent_collective, segmentation_fault, stack_overflow, division, time_limit,
    assertion, trap, pending_copy, conversion, shift, same_value, interrupted, launcher_fault,
    missing_return, refused, mbarrier, barrier_count, transaction_bytes, missing_fence, warp_group,
    pending_registers, register_budget, cluster, left_out,
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
    int in_kernel;    // 0: in the launcher
    uint64_t extent;  // of dynamic shared memory: how many bytes the launch gave
    int owner;        // 1 + the rank of another thread block whose shared memory it is, or 0
    char text[256];  // an assertion's expression, a fault of the host

    Failure& of(const Thread& one) {  // whose fault it is
        thread = one.index, block = one.block->index;
        return *this;
    }
    Failure& beside(const void* where, const Thread& other) {  // the other side of it
        other_site = where, other_thread = other.index, other_block = other.block->index;
        return *this;
    }
    Failure& says(const char* words) { return strncpy(text, words, sizeof(text) - 1), *this; }
};

inline Failure failure_at(Kind kind, int error, const void* site) {
    Failure failure = {};
    failure.kind = kind, failure.error = error, failure.site = site;
    failure.range = -1;
    return failure;
}

// Keeps the first failure of the launch, stops all cores, and never returns.
[[noreturn]] void fail(Core& core, Failure failure);

// A fault of the current thread, in words; `address` is of the memory that they are about, or null.
__attribute__((format(printf, 5, 6))) Failure failure_of(Core& core, Kind kind, const void* site,
                                                         const void* address, const char* words, ...);
// Fails with it; or only notes it, in checked mode.
#define fault(core, ...) fail(core, failure_of(core, __VA_ARGS__))
void note(Core& core, const Failure& failure);

void begin_phase();  // the time limit restarts: a launch, or what the launcher does after it

// Whether the launch must end: it was interrupted, has failed on another core, or ran too long.
bool must_stop(Kind& why);

// The signal stack of one OS thread, and a timer that looks after what it runs.
class Watch {
  public:
    Watch();
    ~Watch();
    Watch(const Watch&) = delete;
};

// Installs the signal handlers for a launch, and restores the previous ones afterwards.
class Handlers {
  public:
    Handlers();
    ~Handlers();
    Handlers(const Handlers&) = delete;
};

}  // namespace emulator
