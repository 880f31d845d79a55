// Race detection. For each granule of memory a cell records its last writers and readers. An access
// that is not ordered after them is a race, even if this run computed the right result.
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

// `kind` of a load or store by an asynchronous copy that has not landed; else it is an Access.
constexpr uint32_t in_flight = 3;

struct Stamp {  // one access
    uint32_t block;  // number of the thread block, over all calls; 0: none yet
    uint16_t thread;
    uint16_t site;
    uint32_t epoch : 30, kind : 2;
    uint32_t clock;
};

struct Cell {
    Stamp writer, other_writer;  // the second: an atomic that was followed by another atomic
    Stamp reader, other_reader;
};

struct Conflict {
    bool found = false;
    Stamp earlier = {};
};

// Vector clocks: for each thread, how often each lane of its warp had synchronized when last seen.
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

// The cells of a contiguous region of memory. A granule is 4 bytes until an access covers only a
// part of one; then granules become that small. Nothing is lost, since all bytes of a granule have
// the same history.
class Shadow {
  public:
    static constexpr size_t most_bytes = 1ull << 33;  // of cells, per Shadow

    Shadow() = default;
    ~Shadow() { unmap(); }
    Shadow(const Shadow&) = delete;

    // Covers `bytes` of memory from now on. The cells keep their contents, which belong to thread
    // blocks that ran earlier and are ignored.
    void cover(size_t bytes);
    bool usable() const { return cells_ != nullptr; }
    bool is_large() const { return mapped_ > most_kept; }

    struct Cells {
        Cell* first;
        size_t count;
    };
    // The cells of an access; none if memory for them could not be mapped.
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
