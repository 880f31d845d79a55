// Asynchronous operations of one thread block, and the barriers by which threads wait for them and for
// each other.
#pragma once

#include <stdint.h>

#include <memory>
#include <vector>

#include "../include/emulator/engines.h"
#include "table.h"

namespace emulator {

class Core;
struct Copy;
struct Failure;
struct Thread;
enum class Kind : int;
enum class Order : int;

constexpr uint32_t warp_group_size = 128;  // threads
constexpr int num_named = 16;

struct Barrier {  // an mbarrier
    bool valid;
    uint32_t expected, pending;  // arrivals of each phase; those that this phase lacks
    uint64_t phase;              // phases that are complete
    int64_t lacking;             // bytes announced in this phase less those that have come
    int64_t announced, issued;   // bytes in this phase: by expect_tx, and of operations
};

struct Named {  // a barrier of the thread block with a number
    uint32_t threads, arrived;
    const void* site;
    const Thread* first;
};

// An operation of the copy engine that has been issued and not been waited for, or the arrival of a
// thread's copies (cp.async) at an mbarrier.
struct Flight {
    std::vector<Span> reads, writes;
    std::unique_ptr<TensorBox> box;  // that is copied; null: the bytes of reads[0], or nothing
    uint64_t* mbarrier;  // that it completes; null: a group of its thread, which waits for that
    uint32_t bytes;      // by which it reduces the mbarrier's pending bytes
    Thread* by;
    uint64_t group;   // groups that its thread had committed before
    uint32_t number;  // of those that its mbarrier completes, for the checker
    uint64_t copies;  // of its thread that land with it: all up to this one
    const void* site;
    bool landed, reads_seen;

    bool moves() const { return box || !reads.empty(); }
};

struct Batch {  // a product of a warp group that has not landed
    void (*perform)(void* const*);
    std::vector<char> data;
    std::vector<void*> pointers;  // into `data`, of each thread
    std::vector<Span> accumulators;
    uint64_t group;
    const void* site;
};

struct Hidden {  // accumulators of products in flight
    std::vector<char> value;
    uint32_t by;  // products
};

struct WarpGroup {
    uint32_t arrived;
    const void* members[warp_group_size];
    const void* site;  // of the first that arrived
    const Thread* first;
    int registers;     // of each thread
    bool changed;      // by setmaxnreg
    std::vector<Batch> batches;  // in flight, in their order
    Table<Hidden> hidden;        // by address
};

class Async {
  public:
    explicit Async(Core& core) : core_(core) {}

    void begin_block(Order order, uint64_t seed);
    void end_block();
    // Nothing can run: lets an operation land, or waiting threads ask again. False: nothing is left.
    bool advance();
    // Other work has been done, so something may land: the more so if a thread polls.
    void tick(bool polls = false);
    void progress() { idle_rounds_ = 0; }
    bool lands_now();  // whether an operation that is issued now lands immediately
    uint64_t random();
    Order order() const { return order_; }

    void mbarrier_init(uint64_t* address, uint32_t count, const void* site);
    void mbarrier_inval(uint64_t* address, const void* site);
    uint64_t mbarrier_arrive(uint64_t* address, uint32_t count, uint32_t bytes, bool drops,
                             const void* site);
    void mbarrier_complete(uint64_t* address, uint32_t bytes, const void* site);
    bool mbarrier_wait(uint64_t* address, uint64_t phase, bool by_parity, const void* site);
    void named_barrier(int id, int threads, bool waits, const void* site);

    void start_copy(const Copy& copy);
    void issue(Flight flight);
    void copies_arrive(uint64_t* barrier, bool counted, const void* site);
    void bulk_wait(size_t groups_in_flight, bool only_reads);
    void issue_product(const Product& mine, const void* site);
    void product_wait(size_t groups_in_flight);
    void drop_products(const Thread& ended);
    void set_registers(bool increases, int registers, const void* site);

    Failure lack(const Thread& thread);
    // Whether the last thread of its warp group does so, and this one waits for that.
    bool waits_for_registers(const Thread& thread) const;

    // The operation that lands at this moment: a fault is one of its line.
    const void* landing = nullptr;

  private:
    Barrier& barrier(uint64_t* address, const void* site);
    void complete_if_done(uint64_t* address, Barrier& barrier);
    void compare_bytes(uint64_t* address, const Barrier& barrier, const void* site);
    bool land_one();
    void land_at(size_t index);
    void land(Flight& flight);
    void land_copies(Thread& thread, uint64_t started);
    bool meet(const void* mine, const void* site);
    void release(WarpGroup& group);
    void hide(WarpGroup& group, const Span& span);
    void land_batch(WarpGroup& group);
    int others_registers(const WarpGroup& group) const;
    int registers_of_block() const;
    void check_own(const uint64_t* barrier, const char* does, const void* site);
    int launch_registers() const;

    Core& core_;
    Order order_;
    uint64_t random_ = 0, polls_ = 0;
    int idle_rounds_ = 0;
    Table<Barrier> barriers_;
    std::vector<Flight> flights_;
    std::vector<WarpGroup> groups_;
};

}  // namespace emulator
