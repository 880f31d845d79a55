// Checked mode: every load and store of a kernel is reported here before it happens.
#pragma once

#include <stdint.h>

#include <string>
#include <vector>

#include "counters.h"
#include "failure.h"
#include "happens.h"
#include "observer.h"
#include "shadow.h"

namespace emulator {

// A range of memory that a kernel may access.
struct Range {
    uintptr_t begin, end;
    Memory memory;
    bool writable;
    int id;          // the number by which Python knows it, or -1
    Shadow* shadow;  // null: not checked for races
};

// Ids of ranges that Python does not name; runtime.py has the same numbers.
constexpr int unknown = -1, dynamic_shared = -2, from_malloc = -4, variables = -5;

struct SharedSymbol {  // a `__shared__` array of the compiled file
    size_t offset, size;
    std::string kernel;  // the only kernel that may use it; empty: any
    int id;
};

// A race that the next events of its thread may excuse: a store, if it turns out to store what was
// there, or a load that was the first step of an atomicCAS.
struct Doubt {
    bool open = false;
    uintptr_t address = 0;
    size_t size = 0;
    unsigned char before[16] = {};
    Failure finding = {};
};

// How an access is made besides loading, storing or both: by an asynchronous copy, at some time
// before it lands; through a volatile pointer; by an atomicCAS, or an atomic that only
// stores.
enum class Manner { plain, copying, is_volatile, comparing, storing };

class Checker final : public Observer {
  public:
    std::vector<Failure> findings;
    std::vector<int> untracked;  // ranges too large for cells, not checked for races
    Counters counters;

    void begin();
    void end();
    void add_range(void* begin, size_t size, int id);
    void add_symbol(size_t offset, size_t size, const char* kernel, int id);
    const Range* find(uintptr_t address, size_t size);

    // An operation without a result that C++ defines; `text` says which.
    void undefined(Core& core, Kind kind, const void* site, const char* text);

    // One access of the current thread; `site` is the address after the instruction.
    void access(Core& core, uintptr_t address, size_t size, Access kind, const void* site,
                Manner manner = Manner::plain);

    void begin_launch() override;
    void begin_block(Core& core) override;
    void end_block(Core& core) override;
    void arrive(Core& core, bool first) override;
    void pass_barrier(Core& core) override;
    void meet(Core& core, uint32_t warp, uint32_t lanes, bool whole_warp) override;
    void fence(Core& core, bool device) override;
    void outside_own_mask(Core& core) override;
    void inactive_lane(Core& core, const Thread& thread, uint32_t source) override;
    void start_copy(Core& core, const Copy& copy) override;
    void land_copy(Core& core, const Copy& copy) override;
    void mbarrier_made(Core& core, const uint64_t* barrier, const void* site) override;
    void mbarrier_arrive(Core& core, const uint64_t* barrier, uint32_t count,
                         const void* site) override;
    void mbarrier_complete(Core& core, const uint64_t* barrier) override;
    void mbarrier_seen(Core& core, const uint64_t* barrier) override;
    void named_arrive(Core& core, int id) override;
    void named_complete(Core& core, int id) override;
    void issued(Core& core, Flight& flight) override;
    void landed(Core& core, const Flight& flight) override;
    void waited(Core& core, const Flight& flight, bool only_reads) override;
    void fence_async(Core& core, bool of_mbarrier_init) override;
    void product_issued(Core& core, const Product& product, const void* site) override;
    void product_fence(Core& core) override;
    void product_waited(Core& core, size_t groups_in_flight) override;
    void locate(Failure& failure) override;
    void found(Core& core, const Failure& failure) override;
    void allocated(void* begin, size_t size) override;
    void freed(void* begin) override;
    bool host_range_is_valid(const void* begin, size_t size) override;
    bool holds_code(const void* instruction) const override;

  private:
    Failure describe(Core& core, Kind kind, const void* site) const;
    Failure describe(Core& core, Kind kind, const void* site, const Range& range,
                     uintptr_t address, size_t size, Access access) const;
    void add(const Failure& finding);
    [[noreturn]] void refuse(Core& core, Failure finding);
    void refuse_out_of_bounds(Core& core, uintptr_t address, size_t size, Access kind,
                              const void* site);
    void look_for_race(Core& core, const Range& range, uintptr_t address, size_t size,
                       Access kind, uint16_t index, Manner manner);
    bool is_ordered(const Core& core, const Stamp& earlier, bool in_shared) const;
    bool conflicts(const Core& core, const Stamp& earlier, Touch touch, bool in_shared) const;
    void settle_store();
    void settle_load(uint32_t thread);
    void settle_all();
    void forget_loads(uint32_t thread, const Shadow::Cells& cells, uintptr_t address, size_t size);
    Shadow::Cells cells_of(const Range& range, uintptr_t address, size_t size) const;
    void settle(Core& core, const void* address, size_t size);
    void add_shared(const Launch& launch);
    Shadow* take_shadow(size_t bytes);
    Shadow* variable_shadow(const Range& segment);

    std::vector<Range> ranges_;
    std::vector<SharedSymbol> symbols_;
    std::vector<Shadow*> shadows_;  // kept between calls; the first `num_shadows_` are in use
    size_t num_shadows_ = 0;
    Shadow* static_shadow_ = nullptr;
    Shadow* dynamic_shadow_ = nullptr;
    std::vector<std::pair<uintptr_t, Shadow*>> variables_;  // for the file's writable segments
    size_t last_found_ = 0;
    HappensBefore order_;
    uint32_t next_block_ = 1, first_block_ = 1;  // numbers of thread blocks, over all calls
    uintptr_t shared_base_ = 0;  // of the file's static shared arrays
    std::vector<uint3> block_indices_;  // of the launch, in the order in which they ran
    bool threads_were_killed_ = false;
    const Thread* first_arrived_ = nullptr;
    Doubt stored_;                // the latest store, which has not happened yet
    std::vector<Doubt> loaded_;   // per thread
    bool any_loaded_ = false;
};

extern Checker checker;

}  // namespace emulator
