// What checked mode is told of. The checker is a library of its own, built and loaded only when it
// is asked for; without it nothing is observed.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emulator {

class Core;
struct Thread;

class Observer {
  public:
    virtual void begin_launch() = 0;
    virtual void begin_block(Core& core) = 0;
    virtual void end_block(Core& core) = 0;

    // What threads do together.
    virtual void arrive(Core& core, bool first) = 0;
    virtual void pass_barrier(Core& core) = 0;
    virtual void meet(Core& core, uint32_t warp, uint32_t lanes, bool whole_warp) = 0;
    virtual void outside_own_mask(Core& core) = 0;
    virtual void inactive_lane(Core& core, const Thread& thread, uint32_t source) = 0;

    // What the host does.
    virtual void allocated(void* begin, size_t size) = 0;
    virtual void freed(void* begin) = 0;
    virtual bool host_range_is_valid(const void* begin, size_t size) = 0;

    // Whether an instruction is the observer's own.
    virtual bool holds_code(const void* instruction) const = 0;
};

extern Observer* observer;  // null: nothing is checked

}  // namespace emulator
