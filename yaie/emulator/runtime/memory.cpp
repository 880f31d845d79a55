// cudaMalloc, cudaMemcpy and cudaMemset, as launchers use them.
#include "memory.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "grid.h"
#include "observer.h"

namespace emulator {

std::vector<Allocation> allocations;

namespace {

constexpr size_t alignment = 256;
const size_t page_size = (size_t)sysconf(_SC_PAGESIZE);

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Whether a copy may read or write these bytes, as far as the observer knows.
bool is_valid(const void* begin, size_t bytes, bool writes, bool on_host) {
    return !observer || observer->host_copies(begin, bytes, writes, on_host);
}

}  // namespace

const Allocation* allocation_near(const void* address) {
    for (const Allocation& one : allocations) {
        const auto distance = (uintptr_t)address - ((uintptr_t)one.begin - allocation_gap);
        if (distance < one.bytes + 2 * allocation_gap) return &one;
    }
    return nullptr;
}

void release(const Allocation& one) {
    const auto begin = (uintptr_t)one.begin / page_size * page_size - allocation_gap;
    munmap(reinterpret_cast<void*>(begin), rounded(one.bytes, page_size) + 2 * allocation_gap);
}

}  // namespace emulator

using namespace emulator;

extern "C" {

// The memory ends where its pages end, and is filled with NaN.
int emulator_allocate(void** pointer, size_t bytes, int on_host) {
    *pointer = nullptr;
    if (!bytes) return 0;
    const size_t pages = rounded(bytes, page_size);
    void* all = mmap(nullptr, pages + 2 * allocation_gap, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return set_error(2), 2;
    char* first = static_cast<char*>(all) + allocation_gap;
    if (mprotect(first, pages, PROT_READ | PROT_WRITE) != 0) {
        return munmap(all, pages + 2 * allocation_gap), set_error(2), 2;
    }
    *pointer = memset(first + pages - rounded(bytes, alignment), 0xff, bytes);
    allocations.push_back({*pointer, bytes, on_host != 0});
    if (observer) observer->allocated(allocations.back());
    return 0;
}

int emulator_free(void* pointer) {
    if (!pointer) return 0;
    for (size_t i = 0; i < allocations.size(); ++i) {
        if (allocations[i].begin != pointer) continue;
        const Allocation freed = allocations[i];
        allocations.erase(allocations.begin() + i);
        if (!observer || !observer->freed(freed)) release(freed);
        return 0;
    }
    return note_refusal(1, __builtin_return_address(0),
                        "cudaFree of a pointer that no cudaMalloc has returned, or that was freed");
}

int emulator_copy(void* to, const void* from, size_t bytes, int kind) {
    const bool from_host = kind == 0 || kind == 1, to_host = kind == 0 || kind == 2;
    if (kind >= 0 && kind <= 4 && (!bytes || (to && from)) && is_valid(from, bytes, false, from_host) &&
        is_valid(to, bytes, true, to_host)) {
        memmove(to, from, bytes);
        return 0;
    }
    return note_refusal(1, __builtin_return_address(0),
                        "cudaMemcpy of %zu bytes from or to memory that has fewer, was freed, or is not "
                        "where its last argument says", bytes);
}

int emulator_set(void* to, int value, size_t bytes) {
    if (!bytes || (to && is_valid(to, bytes, true, false))) {
        if (bytes) memset(to, value, bytes);
        return 0;
    }
    return note_refusal(1, __builtin_return_address(0),
                        "cudaMemset of %zu bytes of memory that has fewer, or was freed", bytes);
}
}
