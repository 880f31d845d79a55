// Checked mode: every load and store of a kernel is reported here before it happens.
#pragma once

#include <stdint.h>

#include <string>
#include <vector>

#include "async.h"
#include "counters.h"
#include "failure.h"
#include "happens.h"
#include "memory.h"
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
    bool on_host = false;  // the host may access it as well
    uint32_t since = 0;    // number of a team: none before it has written there
    int block = -1;        // of shared memory: whose, in the team
    uintptr_t origin = 0;  // where its cells begin, unless at `begin`

    bool holds(uintptr_t address, size_t size) const {
        return address - begin <= end - begin && size <= end - address;
    }
};

// Ids of ranges that Python does not name; runtime.py has the same numbers.
constexpr int unknown = -1, dynamic_shared = -2, from_malloc = -4, variables = -5, is_free = -6;

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
// before it lands, or by one of the copy engine; through a volatile pointer; by an atomicCAS, or an atomic that only
// stores; of the mbarrier that an operation completes, when it is issued.
enum class Manner { plain, copying, bulk, is_volatile, comparing, storing, issuing };

// A local variable of a thread that has no value yet, or not all of it.
struct Unset {
    uintptr_t begin;
    size_t size, item;
    const char* name;
};

struct Update {  // what a thread has read through a volatile pointer, and who had written it
    uintptr_t address = 0;
    Stamp writer = {};
    bool again = false;  // not for the first time, so that it may have waited for a value
};

struct Agent {  // what accesses memory for a thread, and the time of its operation; 0: the thread
    uint32_t thread = 0, time = 0;
};

class Checker final : public Observer {
  public:
    std::vector<Failure> findings;
    std::vector<int> untracked;  // ranges too large for cells, not checked for races
    size_t barriers = 0;         // how often thread blocks passed __syncthreads, added up
    Counters counters;

    void begin();
    void end();
    void add_range(void* begin, size_t size, int id, bool on_host, uint32_t since = 0);
    void find_unwritten(uintptr_t begin, size_t size, size_t item);
    void add_symbol(size_t offset, size_t size, const char* kernel, int id);
    const Range* find(uintptr_t address, size_t size);

    // An operation without a result that C++ defines; `text` says which.
    void undefined(Core& core, Kind kind, const void* site, const char* text);

    // One access of the current thread; `site` is the address after the instruction.
    void access(Core& core, uintptr_t address, size_t size, Access kind, const void* site,
                Manner manner = Manner::plain);
    void host_access(uintptr_t address, size_t size, Access kind, const void* site);

#define EVENT(result, name, parameters) result name parameters override;
#include "events.h"
#undef EVENT

  private:
    Failure describe(Core& core, Kind kind, const void* site) const;
    Failure describe(Core& core, Kind kind, const void* site, const void* address);
    Failure describe(Core& core, Kind kind, const void* site, const Range& range,
                     uintptr_t address, size_t size, Access access) const;
    // The same of one that is not ordered after an earlier access.
    Failure finding_of(Core& core, Kind kind, const void* site, const Range& range,
                       uintptr_t address, size_t size, Access access, const Stamp& earlier) const;
    // 1 + the rank of another thread block whose shared memory it is.
    static int owner_of(const Core& core, const Range& range);
    void add(const Failure& finding);
    [[noreturn]] void refuse(Core& core, Failure finding);
    Failure out_of_bounds(Core& core, uintptr_t address, size_t size, Access kind,
                          const void* site) const;
    void look_for_race(Core& core, const Range& range, uintptr_t address, size_t size,
                       Access kind, uint16_t index, Manner manner, Agent agent = {});
    bool is_ordered(const Core& core, const Stamp& earlier, bool in_shared) const;
    bool conflicts(const Core& core, const Stamp& earlier, Touch touch, bool in_shared) const;
    bool loses_update(uint32_t thread, uintptr_t address, const Stamp& last, Access kind,
                      Manner manner);
    void settle_store();
    void settle_all();
    void forget_loads(uint32_t thread, const Shadow::Cells& cells, uintptr_t address, size_t size);
    Shadow::Cells cells_of(const Range& range, uintptr_t address, size_t size) const;
    void settle(uint16_t me, const void* address, size_t size, Agent agent,
                Touch touch = Touch::store);

    // Asynchronous operations, see async_checks.cpp.
    struct Meeting {  // at a barrier, but for __syncthreads
        Knowledge pending, complete;  // given in the present phase and in earlier ones
        uint32_t agent = 0;           // of the operations that the mbarrier completes
        uint32_t issued = 0, seen = 0;  // operations
        std::vector<uint32_t> in_flight;
        uint32_t made_by = 0, made_at = 0;  // the thread that initialized it, and when
        const void *made = nullptr, *site = nullptr;  // and of the latest operation
    };
    struct Reach {  // the last access of a thread to the shared memory of another thread block
        uint32_t time, size;
        uintptr_t address;
        const Range* range;
        Access kind;
        const void* site;
    };
    struct AgentState {
        uint32_t started_by;  // the thread that issued its latest operation
        bool is_product;
    };
    struct Registers {  // of a thread that a product uses
        uintptr_t begin, end;
        bool accumulates, pending;
        uint64_t group, written;  // and when they were written last, in events of the thread
        const void *site, *writer;
    };
    struct Products {  // of a thread
        uint64_t events = 0, fenced = 0;
        std::vector<Registers> registers;
        uintptr_t begin = UINTPTR_MAX, end = 0;  // all registers lie in [begin, end)
    };
    struct Read {  // what the products of a warp group read: who wrote it
        Stamp writer;
        const Range* range;
        uintptr_t place;
    };

    void begin_async(Core& core);
    void end_async(Core& core);
    Meeting& meeting(const void* barrier);
    void synchronize(const Core& core, uint32_t first, uint32_t end);
    Agent new_agent(uint32_t thread, bool is_product);
    const AgentState& agent_of(const Stamp& stamp) const {
        return agents_[(stamp.thread - first_agent) / 32];
    }
    void name_agent(const Stamp& stamp, Failure& finding) const;
    void touch(Core& core, const void* address, size_t size, Access kind, const void* site,
               Manner manner, Agent agent = {});
    bool is_fenced(uint32_t thread, const Stamp& store, bool in_shared) const;
    bool is_made_visible(uint32_t thread, const Meeting& one) const;
    void note_unfenced(Core& core, const Stamp& store, const Range& range, uintptr_t place,
                       Access kind, const void* site);
    void find_writers(Core& core, const Span& span, std::vector<Read>& reads, const void* site,
                      Agent agent);
    void use_registers(Core& core, const Span* spans, size_t count, bool accumulates,
                       const void* site);
    void end_products(Core& core);
    bool is_declared(uint32_t thread, uintptr_t address) const;
    void forget_fragments(uint32_t thread, uintptr_t begin, size_t size);
    void touch_registers(Core& core, uintptr_t address, size_t size, Access kind, const void* site);
    void touch_own(Core& core, uintptr_t address, size_t size, Access kind, const void* site);
    void settle_own(uint32_t thread);
    void forget_unset(Core& core, uint32_t thread);
    void reach(Core& core, const Range& range, uintptr_t address, size_t size, Access kind,
               const void* site, bool by_agent);
    void end_reaching(Core& core);
    void add_shared(const Core& core);
    Shadow* take_shadow(size_t bytes);
    Shadow* variable_shadow(const Range& segment);

    std::vector<Range> ranges_;
    std::vector<SharedSymbol> symbols_;
    std::vector<Shadow*> shadows_;  // kept between calls; the first `num_shadows_` are in use
    size_t num_shadows_ = 0;
    std::vector<Shadow*> static_shadows_, dynamic_shadows_;  // for each thread block of a team
    std::vector<std::pair<uintptr_t, Shadow*>> variables_;  // for the file's writable segments
    size_t last_found_ = 0;
    HappensBefore order_;
    uint32_t next_block_ = 1, first_block_ = 1;  // numbers of teams, over all calls
    std::vector<Allocation> kept_;  // what cudaFree freed in this call
    size_t bytes_kept_ = 0;
    std::vector<uint64_t> teams_;  // of the launch, in the order in which they ran
    bool threads_were_killed_ = false;
    Doubt stored_;                // the latest store, which has not happened yet
    std::vector<std::vector<Doubt>> loaded_;  // per thread
    bool any_loaded_ = false;
    std::vector<Update> updates_;  // per thread
    std::vector<std::vector<Unset>> unset_;  // per thread
    std::vector<Doubt> own_;                 // per thread: a read of one, unless a shuffle's
    bool any_unset_ = false;
    Table<Meeting> meetings_;     // by the barrier's address
    std::vector<Reach> reaches_;  // [thread][thread block], in clusters
    std::vector<Seen> exits_;     // of each thread block: what its threads had seen when they ended
    std::vector<AgentState> agents_;
    std::vector<uint32_t> group_agents_;   // of each warp group; 0: none yet
    std::vector<Seen> made_visible_;       // per thread: what it had seen at its last fence.mbarrier_init
    std::vector<Products> products_;       // per thread
    bool any_products_ = false;
};

extern Checker checker;

void note_reader(Cell& cell, const Stamp& now, const HappensBefore& order);

// While it exists, the time limit does not abandon the thread block, so no allocation is lost.
class Busy {
  public:
    explicit Busy(Core& core) : core_(core) { core_.busy = 1; }
    ~Busy() { core_.busy = 0; }

  private:
    Core& core_;
};

}  // namespace emulator
