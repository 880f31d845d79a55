// Race detection. For each granule of memory a cell records its last writers and readers. An access
// that is not ordered after them is a race, even if this run computed the right result;
// happens.h tells which accesses are ordered.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <vector>

#include "core.h"
#include "failure.h"

namespace emulator {

// What a thread did to a granule. Volatile accesses, like atomics, may meet others of their kind.
enum class Touch : uint32_t {
    load, store, atomic, in_flight /* by an asynchronous copy that has not landed */,
    volatile_load, volatile_store,
    unfenced_store,  // a volatile store with no fence since the last store of its thread
};

inline bool is_strong(Touch touch) { return touch == Touch::atomic || touch > Touch::in_flight; }

struct Stamp {  // one access
    uint32_t block;  // number of the thread block, over all calls; 0: none yet
    uint16_t thread;
    uint16_t site;
    uint32_t time : 29, kind : 3;  // of the thread, see happens.h; a Touch

    Touch touch() const { return (Touch)kind; }
};

struct alignas(64) Cell {  // a line of the cache
    Stamp store;                 // the last; since then:
    Stamp strong, other_strong;  // atomics and volatile stores of two threads
    Stamp reader, other_reader;
};

struct Conflict {
    bool found = false;
    Stamp earlier = {};
    size_t granule = 0;  // of those that the access covers
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
