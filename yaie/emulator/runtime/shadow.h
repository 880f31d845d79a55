// Races. For each byte of memory a cell remembers who wrote and who read it last; an access that
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

class Shadow {
  public:
    explicit Shadow(size_t bytes);  // lazily backed: costs memory only where a kernel reaches
    ~Shadow();
    Shadow(const Shadow&) = delete;
    bool usable() const { return cells_ != nullptr; }
    Cell* at(size_t offset) { return cells_ + offset; }

  private:
    Cell* cells_ = nullptr;
    size_t bytes_;
};

}  // namespace emulator
