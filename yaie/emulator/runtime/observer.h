// The events that the runtime reports in checked mode. The checker is a separate library, built and
// loaded only on request; without it there is no observer.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emulator {

class Core;
struct Allocation;
struct Copy;
struct Failure;
struct Flight;
struct Product;
struct Thread;

class Observer {
  public:
    virtual void begin_launch() = 0;
    virtual void begin_block(Core& core) = 0;  // or several that live together
    virtual void end_block(Core& core) = 0;

    // Barriers and collectives.
    virtual void arrive(Core& core, bool first) = 0;
    virtual void pass_barrier(Core& core) = 0;
    // At the barrier of a cluster or a grid; `all_wait`: none does anything between the two.
    virtual void team_arrive(Core& core, bool releases) = 0;
    virtual void team_passes(Core& core, bool all_wait) = 0;
    virtual void team_seen(Core& core) = 0;
    virtual void thread_ends(Core& core) = 0;
    virtual void meet(Core& core, uint32_t warp, uint32_t lanes, bool whole_warp) = 0;
    virtual void fence(Core& core, bool device) = 0;
    virtual void outside_own_mask(Core& core) = 0;
    virtual void collective(Core& core) = 0;  // the current thread arrives at one
    virtual void inactive_lane(Core& core, const Thread& thread, uint32_t source) = 0;

    // Asynchronous copies of the current thread.
    virtual void start_copy(Core& core, const Copy& copy) = 0;
    virtual void land_copy(Core& core, const Copy& copy) = 0;

    // mbarriers, by their address, and named barriers.
    virtual void mbarrier_made(Core& core, const uint64_t* barrier, const void* site) = 0;
    virtual void mbarrier_arrive(Core& core, const uint64_t* barrier, uint32_t count,
                                 const void* site) = 0;
    virtual void mbarrier_complete(Core& core, const uint64_t* barrier) = 0;
    virtual void mbarrier_seen(Core& core, const uint64_t* barrier) = 0;
    virtual void named_arrive(Core& core, int id) = 0;
    virtual void named_complete(Core& core, int id) = 0;

    // Operations of the current thread: one has been issued, has landed, has been waited for.
    virtual void issued(Core& core, Flight& flight) = 0;
    virtual void landed(Core& core, const Flight& flight) = 0;
    virtual void waited(Core& core, const Flight& flight, bool only_reads) = 0;
    virtual void left(Core& core, const Flight& flight) = 0;  // the thread block ends
    virtual void fence_async(Core& core, int proxies) = 0;  // of which each is a bit
    // By the warp group that begins with the thread `first`: the parts of all its threads.
    virtual void product_issued(Core& core, uint32_t first, const void* const* parts) = 0;
    virtual void product_fence(Core& core) = 0;
    virtual void product_waited(Core& core, size_t groups_in_flight) = 0;

    // Local variables of the current thread; an item of 0 bytes: its scope ends.
    virtual void unset(Core& core, void* variable, size_t size, size_t item, const char* name) = 0;
    virtual void filled(Core& core, const void* begin, size_t size) = 0;  // by the runtime

    // Findings of the runtime itself.
    virtual void locate(Failure& failure) = 0;  // names the memory at its address
    virtual void found(Core& core, const Failure& failure) = 0;

    // Calls of the host.
    virtual void allocated(const Allocation& memory) = 0;
    virtual bool freed(const Allocation& memory) = 0;  // whether it keeps the memory for a while
    // Whether bytes that begin in device memory end in it; they are read or written.
    virtual bool host_copies(const void* begin, size_t size, bool writes) = 0;

    // Whether an instruction belongs to the observer's own code.
    virtual bool holds_code(const void* instruction) const = 0;
};

extern Observer* observer;  // null: nothing is checked

}  // namespace emulator
