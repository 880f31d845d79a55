// Checked mode: every load and store of a kernel is reported here before it happens.
#pragma once

#include <stdint.h>

#include <string>
#include <vector>

#include "counters.h"
#include "failure.h"
#include "observer.h"
#include "shadow.h"
#include "table.h"

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

    void atomic_store(Core& core, uintptr_t address, size_t size, const void* site);

    // An operation without a result that C++ defines; `text` says which.
    void undefined(Core& core, Kind kind, const void* site, const char* text);

    // One access of the current thread; `site` is the address after the instruction. `copying`: an
    // asynchronous copy makes it, at some time before the copy lands.
    void access(Core& core, uintptr_t address, size_t size, Access kind, const void* site,
                bool copying = false);

    void begin_launch() override;
    void begin_block(Core& core) override;
    void end_block(Core& core) override;
    void arrive(Core& core, bool first) override;
    void pass_barrier(Core& core) override;
    void meet(Core& core, uint32_t warp, uint32_t lanes, bool whole_warp) override;
    void outside_own_mask(Core& core) override;
    void inactive_lane(Core& core, const Thread& thread, uint32_t source) override;
    void start_copy(Core& core, const Copy& copy) override;
    void land_copy(Core& core, const Copy& copy) override;
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
                       Access kind, uint16_t index, bool copying);
    Shadow::Cells cells_of(const Range& range, uintptr_t address, size_t size) const;
    void settle(Core& core, const void* address, size_t size);
    void order_by_atomic(Core& core, uintptr_t address);
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
    Clocks clocks_;
    uint32_t next_block_ = 1, first_block_ = 1;  // numbers of thread blocks, over all calls
    uintptr_t shared_base_ = 0;  // of the file's static shared arrays
    std::vector<uint3> block_indices_;  // of the launch, in the order in which they ran
    bool threads_were_killed_ = false;
    const Thread* first_arrived_ = nullptr;
    // Thread blocks of the launch, in the order in which they ran. released_ holds per address
    // those whose stores are visible after an atomic on it; acquired_ holds those whose stores are
    // visible to the current thread block. See order_by_atomic.
    Table<NumberSet> released_;
    NumberSet acquired_;
};

extern Checker checker;

}  // namespace emulator
