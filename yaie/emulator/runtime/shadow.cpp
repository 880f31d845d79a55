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
        if (!cell.store.block && !cell.strong.block && !cell.reader.block) continue;
        for (size_t j = 0; j < parts; ++j) finer.cells_[i * parts + j] = cell;
    }
    std::swap(cells_, finer.cells_);
    std::swap(mapped_, finer.mapped_);
}

}  // namespace emulator
