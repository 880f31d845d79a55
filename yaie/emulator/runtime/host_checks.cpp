// What the host does with the device's memory: cudaMalloc, cudaFree, copies, and accesses of its own.
#include <string.h>

#include "calls.h"
#include "checker.h"
#include "memory.h"

namespace emulator {
namespace {

constexpr size_t most_kept = 1 << 28;    // bytes of memory that is free
constexpr size_t most_marked = 1 << 20;  // bytes that the host writes into larger memory

}  // namespace

// Its cells may hold older thread blocks. What the host writes counts as written by this number.
void Checker::allocated(const Allocation& memory) {
    add_range(memory.begin, memory.bytes, from_malloc, memory.on_host,
              memory.on_host ? 0 : next_block_++);
}

// The memory is kept until the call ends, so that no other takes its place.
bool Checker::freed(const Allocation& memory) {
    const bool keep = bytes_kept_ + memory.bytes <= most_kept;
    if (keep) kept_.push_back(memory), bytes_kept_ += memory.bytes;
    last_found_ = 0;
    for (size_t i = 0; i < ranges_.size(); ++i) {
        if (ranges_[i].begin != reinterpret_cast<uintptr_t>(memory.begin)) continue;
        ranges_[i].id = is_free;
        if (!keep) ranges_.erase(ranges_.begin() + i);
        break;
    }
    return keep;
}

bool Checker::host_copies(const void* begin, size_t size, bool writes, bool on_host) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(begin);
    if (!find(address, 1)) return true;
    if (!find(address, size) || ranges_[last_found_].id == is_free) return false;
    Range& range = ranges_[last_found_];
    if (on_host && range.memory == Memory::global && !range.on_host) return false;
    if (!writes || !range.since) return true;
    if (size == range.end - range.begin || size > most_marked) return range.since = 0, true;
    const Shadow::Cells cells = cells_of(range, address, size);
    for (size_t i = 0; i < cells.count; ++i) {
        if (cells.first[i].store.block < range.since) cells.first[i].store = {range.since, 0, 0, 0, 0};
    }
    return true;
}

// An argument, of elements of `item` bytes, where it shows the pattern of empty.py. In a large one that
// was written in part no bytes are told.
void Checker::find_unwritten(uintptr_t begin, size_t size, size_t item) {
    constexpr uint32_t pattern[] = {0xffa5ffa5, 0xffa5ffa5};
    const size_t step = item < 4 ? 8 : 4;
    auto is_written = [&](size_t i) {
        const size_t bytes = size - i < step ? size - i : step;
        return bytes < 4 || memcmp(reinterpret_cast<void*>(begin + i), pattern, bytes) != 0;
    };
    std::vector<size_t> written;
    for (size_t i = 0; i < size; i += step) {
        if (is_written(i)) written.push_back(i);
        if (written.size() > most_marked / step) return;
    }
    if (written.size() == (size + step - 1) / step || !find(begin, size)) return;
    Range& range = ranges_[last_found_];
    range.since = next_block_++;
    for (size_t i : written) {
        host_copies(reinterpret_cast<void*>(begin + i), size - i < step ? size - i : step, true, false);
    }
}

// Of the launcher itself.
void Checker::host_access(uintptr_t address, size_t size, Access kind, const void* site) {
    const Range* range = find(address, 1);
    if (!range || range->memory != Memory::global || range->on_host) return;
    Failure failure = failure_at(Kind::launcher_fault, 700, site);
    failure.memory = range->memory;
    failure.range = range->id;
    failure.offset = (int64_t)(address - range->begin);
    failure.access = kind;
    failure.size = (int)size;
    abandon_call(failure);
}

}  // namespace emulator
