// Races. For each granule of memory a cell remembers who wrote and who read it last; an access that
// is not ordered after those is a race, whether or not it went well this time.
//
// Threads of one thread block are ordered by its barriers, lanes of one warp also by __syncwarp
// (vector clocks, as in FastTrack, Flanagan and Freund 2009), thread blocks by fences and atomics.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <vector>

#include "core.h"
#include "failure.h"

namespace emulator {

struct Stamp {  // one access
    uint32_t block;  // a running number of the thread block; 0: none yet
    uint16_t thread;
    uint16_t site;
    uint32_t epoch : 30, kind : 2;
    uint32_t clock;
};

struct Cell {
    Stamp writer, other_writer;  // the second: an atomic that another atomic followed
    Stamp reader, other_reader;
};

struct Conflict {
    bool found = false;
    Stamp earlier = {};
};

// How often each lane had met the others of its warp, as every lane knows it.
class Clocks {
  public:
    void begin_block(uint32_t num_threads);
    void join(uint32_t warp, uint32_t lanes);
    uint32_t own(uint32_t thread) const { return known_[thread * 32 + thread % 32]; }
    bool has_seen(uint32_t thread, uint32_t other, uint32_t clock) const {
        return known_[thread * 32 + other % 32] >= clock;
    }

  private:
    std::vector<uint32_t> known_;  // [thread][lane]
};

// The cells of a stretch of memory. A granule is 4 bytes, until an access touches part of one: then
// it becomes as small as that. Nothing is lost, since all bytes of a granule have one history.
class Shadow {
  public:
    static constexpr size_t most_bytes = 1ull << 33;  // of cells, for one stretch

    Shadow() = default;
    ~Shadow() { unmap(); }
    Shadow(const Shadow&) = delete;

    // Covers `bytes` of memory from now on. What the cells held before stays: it is of thread
    // blocks that ran earlier.
    void cover(size_t bytes);
    bool usable() const { return cells_ != nullptr; }
    bool is_large() const { return mapped_ > most_kept; }

    struct Cells {
        Cell* first;
        size_t count;
    };
    // The cells of an access; none if memory for them cannot be had.
    Cells at(size_t offset, size_t size) {
        if ((offset | size) & ((1u << shift_) - 1)) refine(offset | size);
        return {cells_ + (offset >> shift_), cells_ ? size >> shift_ : 0};
    }

  private:
    static constexpr size_t most_kept = 1ull << 26;

    void refine(size_t part);
    void map(size_t cells);
    void unmap();

    Cell* cells_ = nullptr;
    size_t bytes_ = 0, mapped_ = 0;  // of memory, of cells
    unsigned shift_ = 2;             // a granule has 1 << shift_ bytes
};

}  // namespace emulator
