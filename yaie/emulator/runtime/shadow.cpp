#include "shadow.h"

#include <sys/mman.h>

#include <algorithm>

namespace emulator {

void Shadow::cover(size_t bytes) {
    bytes_ = bytes;
    shift_ = 2;
    const size_t needed = ((bytes >> shift_) + 1) * sizeof(Cell);
    if (needed > mapped_) map(needed);
}

// The pages are backed lazily, so only what a kernel accesses costs memory.
void Shadow::map(size_t bytes) {
    unmap();
    if (bytes > most_bytes) return;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    cells_ = static_cast<Cell*>(memory);
    mapped_ = bytes;
}

void Shadow::unmap() {
    if (cells_) munmap(cells_, mapped_);
    cells_ = nullptr;
    mapped_ = 0;
}

// Splits granules until an access of `part` bytes, or at that offset, covers whole granules.
void Shadow::refine(size_t part) {
    const unsigned before = shift_;
    shift_ = part & 1 ? 0 : 1;
    if (!cells_) return;
    Shadow finer;
    finer.map(((bytes_ >> shift_) + 1) * sizeof(Cell));
    const size_t parts = 1ull << (before - shift_);
    for (size_t i = 0; finer.cells_ && i <= bytes_ >> before; ++i) {
        const Cell& cell = cells_[i];
        if (!cell.writer.block && !cell.reader.block) continue;
        for (size_t j = 0; j < parts; ++j) finer.cells_[i * parts + j] = cell;
    }
    std::swap(cells_, finer.cells_);
    std::swap(mapped_, finer.mapped_);
}

void Clocks::begin_block(uint32_t num_threads) {
    known_.assign((size_t)num_threads * 32, 0);
    for (uint32_t thread = 0; thread < num_threads; ++thread) known_[thread * 32 + thread % 32] = 1;
}

// After __syncwarp each lane has seen all that any of them had seen; its next accesses are unseen.
void Clocks::join(uint32_t warp, uint32_t lanes) {
    uint32_t joined[32] = {};
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const uint32_t* known = &known_[(size_t)(warp * 32 + __builtin_ctz(rest)) * 32];
        for (int i = 0; i < 32; ++i) joined[i] = std::max(joined[i], known[i]);
    }
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const uint32_t lane = __builtin_ctz(rest);
        uint32_t* known = &known_[(size_t)(warp * 32 + lane) * 32];
        std::copy(joined, joined + 32, known);
        ++known[lane];
    }
}

}  // namespace emulator
