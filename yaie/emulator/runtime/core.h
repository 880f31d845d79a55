// How a thread block runs.
//
// A launch is spread over OS threads, a core each. A core runs one team after another: the thread
// blocks that live together, which are one, those of a cluster or, of a cooperative launch, those of
// the grid. A checked launch has one core, so that its events have one order; in order "random" its
// teams are several thread blocks, so that one sees what another has done so far.
//
//     kernel<<<4, 3>>>()        grid.cpp; what a GPU would refuse, limits.cpp refuses
//           │
//     ┌─────┴─────┐
//   core 0      core 1
//   team 0      team 1          "forward": 0 1 2 3, "reverse": 3 2 1 0, "random": by the seed
//   team 3      team 2
//
// Within a team one thread runs until it ends or must wait; then the core switches directly to the
// next that can run. A switch exchanges the stack and six registers (stacks.cpp). Below, three threads
// and a barrier: │ is a thread that runs, ┊ one that waits on its own stack.
//
//   thread       0    1    2
//                │                       starts on stack A
//   __syncthreads┊ ─▶ │                  waits, so 1 starts on stack B
//                ┊    ┊ ─▶ │             2 on stack C
//                ┊    ┊    │  arrives    the last one: all may go on
//                │ ◀────── ┊             the next in the ring does, until it waits or ends
//                  ─▶ │    ┊             then 1
//
// Threads that never wait use one stack, one after another.
//
//              start              must wait
//   fresh ─────────────▶ running ───────────▶ at_barrier, at_collective, at_mbarrier, …
//                        │     ▲                │
//                returns │     └──── ready ◀────┘  the last thread arrives, the lanes meet, a phase
//                        ▼                         is complete
//                       done
//
// If no thread can run, an asynchronous operation lands (async.cpp); if none is in flight, stuck()
// tells the deadlock. In checked mode the compiler reports each access before it happens:
//
//   x = tile[i] ─▶ __tsan_read4 ─▶ Checker::access ─┬▶ find              which memory, or out of bounds
//                  (hooks.cpp)     (checker.cpp)    ├▶ look_for_race     cells (shadow.h) say who was here,
//                                                   │                    happens.h whether before
//                                                   └▶ Counters::note    what the warp asks for together
#pragma once

#include <signal.h>
#include <stdint.h>

#include <memory>
#include <vector>

#include "../include/emulator/api.h"
#include "async.h"
#include "stacks.h"

namespace emulator {

constexpr size_t most_shared = 227 * 1024;  // bytes per thread block, as on Hopper
constexpr size_t shared_guard = 1 << 20;

enum class Kind : int;

struct Code {  // the instructions of one shared object
    const char *begin = nullptr, *end = nullptr;
    bool holds(const void* address) const { return address >= begin && address < end; }
};

enum class State : uint8_t {
    fresh, ready, at_barrier, at_collective, converging, at_team, at_mbarrier, at_named, at_group, at_registers,
    done,
};

struct Copy {  // an asynchronous copy (cp.async) that has not been waited for
    void* to;
    const void* from;
    size_t size, zeros;  // bytes; the last `zeros` become zero
    uint64_t group;      // groups that its thread had committed before
    const void* site;
    bool landed;
};

struct Block {  // a thread block of the team
    uint3 index;                    // blockIdx
    unsigned char* shared_end;      // the memory behind it is not accessible
    unsigned char* dynamic_shared;
    ptrdiff_t shift;                // from the file's static shared arrays to its own
    uint32_t first, alive, arrived; // threads: the first, those that have not returned, at the barrier
    uint32_t killed;                // threads that the checker has ended
    uint64_t epoch;                 // barriers passed
    int votes, released_votes, released_count;
    const Thread* first_arrived;    // at the barrier, for the checker
    Named named[num_named];
};

// The barrier of the threads of a cluster, or of a cooperative grid.
struct Gathering {
    uint32_t first, end;     // the slots of its threads
    uint64_t phase = 1;
    uint32_t arrived = 0, left = 0;  // threads that have arrived; those of them that ended
    bool all_sync = true;            // none has arrived and gone on
};

struct Thread {
    uint3 index;      // threadIdx
    uint32_t linear;  // its index in the team; each thread block begins with a warp group
    Block* block;
    State state;
    bool killed;      // ended by the checker; its absence is not a fault of the kernel
    bool fenced;      // has executed a fence since its last store
    const void* polled;  // the address that it polled last
    int stack;
    Context context;
    Thread* next;       // in the ring of threads, in the order of the schedule
    const void* site;   // return address of the call in which it waits
    uint64_t epoch;     // of the barrier at which it waits
    uint64_t gathered[2];  // the phase of its cluster's barrier at which it has arrived, of the grid's
    Collective operation;
    uint32_t mask;
    bool outside_mask;  // passed a mask that does not include itself
    int parameter, width;
    uint64_t value, result;
    std::vector<Copy> copies;  // not waited for, in the order in which they were started
    uint64_t copies_started;
    // Of copies, of operations of the copy engine, and of products: groups that it has committed.
    uint64_t groups, bulk_groups, product_groups;
    const void* awaited;       // the mbarrier or other barrier at which it waits
    uint64_t phase;            // for which phase of the mbarrier

    uint32_t lane() const { return linear % 32; }
};

struct Warp {
    uint32_t alive;    // lanes that have not returned
    uint32_t waiting;  // lanes in a collective
    uint32_t converging;  // lanes that ask which others are active
    uint64_t gathered[32];  // what each lane gave last, see Collective::gather
};

// How many places a thread block has among a team's threads: with others, whole warps or warp groups.
inline uint32_t pitch_of(const Launch& launch, uint32_t threads, bool alone) {
    if (alone) return threads;
    const uint32_t unit = launch.cooperative && threads < warp_group_size ? 32 : warp_group_size;
    return (threads + unit - 1) / unit * unit;
}

inline uint64_t volume(uint3 extent) { return (uint64_t)extent.x * extent.y * extent.z; }

inline uint64_t team_size(const Launch& launch) {  // thread blocks
    const uint64_t clusters = launch.together ? launch.together : 1;
    return launch.cooperative ? volume(launch.grid) : volume(launch.cluster) * clusters;
}

// The lanes whose bits are set, in their order.
struct Lanes {
    uint32_t rest;
    uint32_t operator*() const { return (uint32_t)__builtin_ctz(rest); }
    Lanes& operator++() { return rest &= rest - 1, *this; }
    bool operator!=(Lanes other) const { return rest != other.rest; }
    Lanes begin() const { return *this; }
    Lanes end() const { return {0}; }
};

enum class Order : int { forward, reverse, random };

struct Schedule {
    Order order = Order::forward;
    uint64_t seed = 0;
};

class Core {
  public:
    // Runs one team to its end, or to the first failure.
    void run(const Launch& launch, const Schedule& schedule, uint64_t team_number);
    // The barrier of the cluster's threads, or of the grid's.
    void gather(bool of_grid, bool releases, const void* site, bool waits = false);
    void gather_wait(bool of_grid, bool acquires, const void* site);
    void gather_sync(bool of_grid, const void* site);
    const char* name_of(const void* gathering) const {
        return gathering == &gatherings_.back() ? "grid" : "cluster";
    }

    int sync_threads(Vote vote, int predicate, const void* site);
    uint64_t collective(Collective operation, uint32_t mask, uint64_t value, int parameter,
                        int width, const void* site);
    uint64_t gathered(int lane) const { return warps_[current->linear / 32].gathered[lane]; }
    uint32_t active_lanes(const void* site);
    // Waits in that state until another thread wakes it.
    void suspend(State state, const void* site, const void* awaited = nullptr);
    // Makes the threads ready that wait in that state, for this if it is given; calls before(thread).
    template <class Before>
    bool wake(State state, const void* awaited, Before before) {
        bool any = false;
        for (uint32_t i = 0; i < slots; ++i) {
            Thread& thread = threads[i];
            if (thread.state != state || (awaited && thread.awaited != awaited)) continue;
            before(thread);
            thread.state = State::ready;
            any = true;
        }
        return any;
    }
    bool wake(State state, const void* awaited = nullptr) {
        return wake(state, awaited, [](Thread&) {});
    }
    // Lets other threads run; with an address, only if the current thread polled it just before.
    void poll(const void* address, const void* site);

    [[noreturn]] void leave();        // abandons the whole thread block
    [[noreturn]] void kill_current(); // ends the current thread
    void attend(const void* site);    // does what a signal asked for while it could not be done
    void preempt();                   // lets the other threads run
    [[noreturn]] void stop(Kind why, const void* site);
    bool running() const { return current != nullptr; }
    bool waits_for_another_team();  // the current thread, in a loop, for what the memory of all shows
    void thread_main();

    const Launch* launch = nullptr;
    uint64_t team_number = 0;    // its index in the grid, counted along x, y, z
    std::vector<Block> blocks;   // of the team, those of a cluster side by side
    uint32_t cluster = 1;        // how many of them are a cluster
    Block* here = nullptr;       // that of the current thread
    Thread* current = nullptr;
    std::vector<Thread> threads; // of the team; what does not belong to a thread block is `done`
    uint32_t count = 0;          // threads of a thread block
    uint32_t pitch = 0, slots = 0;  // of `threads`: for each thread block, for all
    Stacks stacks;
    uint64_t switches = 0;       // between threads; unchanged while one computes
    bool checking = false;
    Async async{*this};
    Code code;                   // of the kernel
    // While the runtime is busy, a signal must not abandon the thread: it asks for attention.
    volatile sig_atomic_t busy = 0, attention = 0;

    // Whether an address is in the memory just past the end of dynamic shared memory.
    bool past_shared(const void* address) const {
        return (uintptr_t)address - (uintptr_t)here->shared_end < shared_guard;
    }
    Block* owner(const void* address);  // of shared memory; null: it is none
    // What the same address is in another thread block of the cluster.
    void* mapped(const void* address, uint32_t rank, const void* site);
    uint32_t rank_of(const Block& block) const { return uint32_t(&block - &blocks[0]) % cluster; }
    uint3 index_of_block(uint64_t team, uint32_t thread) const;  // of that team's thread
    // How many bytes the current thread's stack has below an address in it.
    size_t room(const void* top) const { return (const char*)top - stacks.low(current->stack); }

  private:
    void prepare(const Launch& launch, const Schedule& schedule);
    void prepare_blocks();
    void become(Thread* thread);
    void start(Thread* thread);
    void resume(Thread* thread);
    bool can_run(const Thread* thread) const;
    Thread* pick(Thread* after);
    Thread* pick_or_advance(Thread* after);
    void yield();
    void end_thread(Thread* thread);
    void release_barrier(Block& block);
    Gathering& gathering(const Thread& thread, bool of_grid);
    void release(Gathering& one);
    void try_collective(uint32_t warp, uint32_t mask);
    void evaluate(uint32_t warp, uint32_t lanes);
    void gather_rows(uint32_t warp, uint32_t lanes);
    void multiply(uint32_t warp, uint32_t lanes);
    void try_converge(uint32_t warp);
    [[noreturn]] void stuck();

    std::vector<uint32_t> order_;
    uint32_t started_ = 0, alive_ = 0;
    std::vector<Gathering> gatherings_;  // of each cluster of the team, then of the grid
    std::vector<Warp> warps_;
    Context main_ = nullptr;
    std::vector<unsigned char*> shared_;  // the end of each thread block's
    std::unique_ptr<unsigned char[]> arrays_;  // static shared memory of all but the first
    uintptr_t statics_ = 0;  // where the file has it, of how many bytes
    size_t statics_size_ = 0, arrays_size_ = 0;
};

// The core that this OS thread represents while it runs a kernel.
extern __thread Core* this_core __attribute__((tls_model("initial-exec")));

}  // namespace emulator
