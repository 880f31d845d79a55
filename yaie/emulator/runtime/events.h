// What the runtime reports in checked mode, one EVENT(result, name, parameters) each: observer.h declares
// them, checker.h overrides them.

EVENT(void, begin_launch, ())
EVENT(bool, arrays_have_owners, ())  // each shared array is of a kernel, none of the file
EVENT(void, begin_block, (Core& core))  // or several that live together
EVENT(void, end_block, (Core& core))

// __syncthreads, and the collectives of warps.
EVENT(void, arrive, (Core& core, bool first))
EVENT(void, pass_barrier, (Core& core))
EVENT(void, thread_ends, (Core& core))
EVENT(void, meet, (Core& core, uint32_t warp, uint32_t lanes, bool whole_warp))
EVENT(void, fence, (Core& core, bool device))
EVENT(void, outside_own_mask, (Core& core))
EVENT(void, collective, (Core& core))  // the current thread arrives at one
EVENT(void, inactive_lane, (Core& core, const Thread& thread, uint32_t source))

// Other barriers, each by an address of its own: an mbarrier, a named one, a cluster's or a grid's. The
// current thread arrives, and releases what it has done; the barrier is complete; a thread has waited.
EVENT(void, gives, (Core& core, const void* barrier, bool releases))
EVENT(void, completes, (Core& core, const void* barrier))
EVENT(void, takes, (Core& core, const void* barrier, uint32_t thread))
// A cluster's or a grid's is complete; `all_wait`: none does anything between the two.
EVENT(void, gathered, (Core& core, const Gathering& barrier, bool all_wait))
// An mbarrier is initialized or invalidated; is used.
EVENT(void, mbarrier_made, (Core& core, const uint64_t* barrier, const void* site))
EVENT(void, mbarrier_used, (Core& core, const uint64_t* barrier, const void* site))

// Asynchronous copies of the current thread.
EVENT(void, start_copy, (Core& core, const Copy& copy))
EVENT(void, land_copy, (Core& core, const Copy& copy))

// Operations of the current thread: one has been issued, has landed, has been waited for.
EVENT(void, issued, (Core& core, Flight& flight))
EVENT(void, landed, (Core& core, const Flight& flight))
EVENT(void, waited, (Core& core, const Flight& flight, bool only_reads))
EVENT(void, left, (Core& core, const Flight& flight))   // the thread block ends
EVENT(void, fence_async, (Core& core, int proxies))  // of which each is a bit
// By the warp group that begins with the thread `first`: the parts of all its threads.
EVENT(void, product_issued, (Core& core, uint32_t first, const void* const* parts))
EVENT(void, product_fence, (Core& core))
EVENT(void, product_waited, (Core& core, size_t groups_in_flight))

// Local variables of the current thread; an item of 0 bytes: its scope ends.
EVENT(void, unset, (Core& core, void* variable, size_t size, size_t item, const char* name))
EVENT(void, filled, (Core& core, const void* begin, size_t size))  // by the runtime

// Findings of the runtime itself.
EVENT(void, locate, (Failure& failure))  // names the memory at its address
EVENT(void, found, (Core& core, const Failure& failure))

// Calls of the host.
EVENT(void, allocated, (const Allocation& memory))
EVENT(bool, freed, (const Allocation& memory))  // whether it keeps the memory for a while
// Whether a copy may read or write these bytes. Bytes that begin in device memory must end in it, and the
// copy must not take them for the host's.
EVENT(bool, host_copies, (const void* begin, size_t size, bool writes, bool on_host))
