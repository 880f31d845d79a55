// A CPU core runs one thread block at a time, by switching between its threads.
//
// A thread runs until it ends or must wait, at a barrier or for the lanes of its warp. Then the
// core switches directly to the next thread that can run. Threads that never wait use the same
// stack, one after another.
#pragma once

#include <signal.h>
#include <stdint.h>

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
    fresh, ready, at_barrier, at_collective, converging, at_grid, at_mbarrier, at_named, at_group, at_registers,
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

struct Thread {
    uint3 index;      // threadIdx
    uint32_t linear;  // its index in the thread block, counted along x, y, z
    State state;
    bool killed;      // ended by the checker; its absence is not a fault of the kernel
    bool fenced;      // has executed a fence since its last store
    const void* polled;  // the address that it polled last
    int stack;
    Context context;
    Thread* next;       // in the ring of threads, in the order of the schedule
    const void* site;   // return address of the call in which it waits
    uint64_t epoch;     // of the barrier at which it waits
    Collective operation;
    uint32_t mask;
    bool outside_mask;  // passed a mask that does not include itself
    int parameter, width;
    uint64_t value, result;
    std::vector<Copy> copies;  // not waited for, in the order in which they were started
    uint64_t copies_started;
    // Of copies, of operations of the copy engine, and of products: groups that it has committed.
    uint64_t groups, bulk_groups, product_groups;
    uint64_t* awaited;         // the mbarrier at which it waits, for which phase
    uint64_t phase;

    uint32_t lane() const { return linear % 32; }
};

struct Warp {
    uint32_t alive;    // lanes that have not returned
    uint32_t waiting;  // lanes in a collective
    uint32_t converging;  // lanes that ask which others are active
};

enum class Order : int { forward, reverse, random };

struct Schedule {
    Order order = Order::forward;
    uint64_t seed = 0;
};

class Core {
  public:
    Core();

    // Runs one thread block to its end, or to the first failure; or until all its threads wait for the
    // other thread blocks of the grid, from where `go_on` takes it further.
    void run(const Launch& launch, const Schedule& schedule, uint64_t block_number);
    void go_on();
    void sync_grid(const void* site);
    // One of those that wait for the other thread blocks; null: the thread block has ended.
    const Thread* waits_for_grid() const;

    int sync_threads(Vote vote, int predicate, const void* site);
    uint64_t collective(Collective operation, uint32_t mask, uint64_t value, int parameter,
                        int width, const void* site);
    uint32_t active_lanes(const void* site);
    // Waits in that state until another thread makes it ready.
    void suspend(State state, const void* site);
    // Lets other threads run; with an address, only if the current thread polled it just before.
    void poll(const void* address, const void* site);

    [[noreturn]] void leave();        // abandons the whole thread block
    [[noreturn]] void kill_current(); // ends the current thread
    void attend(const void* site);    // does what a signal asked for while it could not be done
    void preempt();                   // lets the other threads run
    [[noreturn]] void stop(Kind why, const void* site);
    bool running() const { return current != nullptr; }
    void thread_main();

    const Launch* launch = nullptr;
    uint3 block = {};            // blockIdx
    uint64_t block_number = 0;   // its index in the grid, counted along x, y, z
    Thread* current = nullptr;
    std::vector<Thread> threads;
    uint32_t count = 0;          // threads of the thread block
    uint64_t epoch = 0;          // barriers passed
    Stacks stacks;
    unsigned char* dynamic_shared = nullptr;
    uint64_t switches = 0;       // between threads; unchanged while one computes
    bool checking = false;
    Async async{*this};
    Code code;                   // of the kernel
    // While the runtime is busy, a signal must not abandon the thread: it asks for attention.
    volatile sig_atomic_t busy = 0, attention = 0;

    // Whether an address is in the memory just past the end of dynamic shared memory.
    bool past_shared(const void* address) const {
        return (uintptr_t)address - (uintptr_t)shared_end_ < shared_guard;
    }
    // How many bytes the current thread's stack has below an address in it.
    size_t room(const void* top) const { return (const char*)top - stacks.low(current->stack); }

  private:
    void prepare(const Launch& launch, const Schedule& schedule);
    void become(Thread* thread);
    void start(Thread* thread);
    void resume(Thread* thread);
    bool can_run(const Thread* thread) const;
    Thread* pick(Thread* after);
    Thread* pick_or_advance(Thread* after);
    void yield();
    void end_thread(Thread* thread);
    void pause();
    void release_barrier();
    void try_collective(uint32_t warp, uint32_t mask);
    void evaluate(uint32_t warp, uint32_t lanes);
    void try_converge(uint32_t warp);
    [[noreturn]] void stuck();

    std::vector<uint32_t> order_;
    uint32_t started_ = 0, alive_ = 0, arrived_ = 0, at_grid_ = 0;
    int votes_ = 0, released_votes_ = 0, released_count_ = 0;
    Warp warps_[32];
    Context main_ = nullptr, paused_ = nullptr;
    unsigned char* shared_end_;  // the memory behind it is not accessible
};

// The core that this OS thread represents while it runs a kernel.
extern __thread Core* this_core __attribute__((tls_model("initial-exec")));

}  // namespace emulator
