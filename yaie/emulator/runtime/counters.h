// Counts what the memory system would do: sectors per request of a warp to global memory, and
// wavefronts per request to shared memory.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <vector>

#include "core.h"
#include "failure.h"
#include "table.h"

namespace emulator {

// One instruction of the compiled kernel that accesses one kind of memory.
struct Site {
    const void* address;
    Memory memory;
    Access access;
    int size;           // bytes per lane
    int range;
    uint64_t requests;  // how often a warp executed it
    uint64_t by_lanes[33];   // requests by their number of active lanes
    uint32_t first_lanes[64];  // the active lanes of the first requests, a bit each
    uint64_t units, ideal_units;  // sectors of 32 bytes, or wavefronts
    // The worst request: its lanes, their offsets in the range, its units.
    uint32_t worst_lanes;
    uint32_t worst_units;
    int64_t worst_offsets[32];
    uint3 worst_block, worst_thread;  // its first lane
};

class Counters {
  public:
    std::vector<Site> sites;
    bool truncated = false;  // more accesses than were kept

    void clear();
    void begin_block(uint32_t num_threads);
    uint16_t site(const void* address, Memory memory, Access access, int size, int range);
    // Notes an access of a thread, to be counted when its warp next synchronizes.
    void note(uint32_t thread, uint16_t site, uintptr_t address, uintptr_t range_begin);
    // Counts the accesses of the lanes of a warp since they last synchronized.
    void flush(const Core& core, uint32_t warp);

  private:
    struct Entry {
        uint16_t site;
        uintptr_t address, range_begin;
    };
    struct Request {
        uint32_t lanes = 0;
        const Entry* entries[32];
    };

    struct Recent {  // a cache of recent sites in front of the index
        uint64_t key = 0;
        uint16_t site = 0;
    };
    static constexpr size_t num_recent = 256;

    uint16_t find_site(const void* address, Memory memory, Access access, int size, int range,
                       uint64_t key);
    void count(const Core& core, uint32_t warp, const Request& request);
    size_t flush_together(const Core& core, uint32_t warp);
    void flush_apart(const Core& core, uint32_t warp, size_t from);

    Table<uint16_t> index_;
    Recent recent_[num_recent];
    std::vector<std::vector<Entry>> logs_;  // per thread
    size_t logged_ = 0;
};

}  // namespace emulator
