// Work that goes on beside the threads of a kernel, and what waits for it: mbarriers, named barriers,
// the copies of the copy engine, and the products of warp groups.
//
//     thread        issue ── commit ── … ── wait ── may touch the memory
//     operation       └ in flight: reads and writes at any time ┘ landed
//
// The runtime decides when an operation lands: in order "forward" as late as the rules allow, in
// "reverse" immediately, in "random" at some time by the seed. A right kernel gives the same results.
#pragma once

#include "warp.h"

namespace emulator {

struct Span {  // bytes that an operation reads or writes
    const void* begin;
    size_t size;
};

// What a fence orders: generic accesses to memory with those of asynchronous operations, or mbarrier_init.
enum class Proxy : int { shared, global, mbarrier_init };
constexpr int num_proxies = 3;

// One thread's part of a wgmma, which the 128 threads of a warp group issue together. `perform` gets
// what `data` points to, of all threads in their order; until then it is copied. The registers that
// the product reads (fragments of A) and those that it reads and writes (accumulators) are named by
// where they are kept; `perform` must use them there. Shared memory is named by the
// first thread of the warp group.
struct Product {
    const Span* reads;  // of shared memory
    size_t num_reads;
    const Span* fragments;
    size_t num_fragments;
    const Span* accumulators;
    size_t num_accumulators;
    void (*perform)(void* const* data);
    const void* data;
    size_t data_size;
};

}  // namespace emulator

extern "C" {
void emulator_mbarrier_init(uint64_t* barrier, uint32_t count);
void emulator_mbarrier_inval(uint64_t* barrier);
// Adds `bytes` to what the phase expects, then arrives `count` times (0: not at all). Returns a token
// of the phase. `drops`: also one thread fewer is expected in each later phase.
uint64_t emulator_mbarrier_arrive(uint64_t* barrier, uint32_t count, uint32_t bytes, int drops);
void emulator_mbarrier_complete(uint64_t* barrier, uint32_t bytes);
// Whether a phase is complete, named by its token or its parity. A thread that asks again waits until
// it is, or until nothing else can run.
int emulator_mbarrier_wait(uint64_t* barrier, uint64_t phase, int by_parity);

void emulator_named_barrier(int id, int threads, int waits);  // threads 0: all of the thread block

void emulator_bulk_commit(void);
void emulator_bulk_wait(size_t groups_in_flight, int only_reads);
void emulator_copies_arrive(uint64_t* barrier, int counted);  // cp.async.mbarrier.arrive(.noinc)

void emulator_issue_product(const emulator::Product* product);
void emulator_product_fence(void);
void emulator_product_commit(void);
void emulator_product_wait(size_t groups_in_flight);

void emulator_fence_async(int proxies);  // a bit for each
void emulator_set_registers(int increases, int registers);
}
