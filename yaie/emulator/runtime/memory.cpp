// cudaMalloc, cudaMemcpy and cudaMemset, as launchers use them.
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "grid.h"
#include "observer.h"

namespace emulator {

std::vector<Allocation> allocations;

namespace {

constexpr size_t alignment = 256;

bool is_valid(const void* begin, size_t bytes, bool writes) {
    return !observer || observer->host_copies(begin, bytes, writes);
}

}  // namespace
}  // namespace emulator

using namespace emulator;

extern "C" {

int emulator_allocate(void** pointer, size_t bytes, int on_host) {
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    *pointer = bytes ? aligned_alloc(alignment, rounded + alignment) : nullptr;
    if (!bytes) return 0;
    if (!*pointer) return set_error(2), 2;
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
        if (!observer || !observer->freed(freed)) free(pointer);
        return 0;
    }
    return note_refusal(1, __builtin_return_address(0),
                        "cudaFree of a pointer that no cudaMalloc has returned, or that was freed");
}

int emulator_copy(void* to, const void* from, size_t bytes, int kind) {
    if (kind >= 0 && kind <= 4 && (!bytes || (to && from)) && is_valid(from, bytes, false) &&
        is_valid(to, bytes, true)) {
        memmove(to, from, bytes);
        return 0;
    }
    return note_refusal(1, __builtin_return_address(0),
                        "cudaMemcpy of %zu bytes from or to memory that has fewer, or was freed", bytes);
}

int emulator_set(void* to, int value, size_t bytes) {
    if (!bytes || (to && is_valid(to, bytes, true))) {
        if (bytes) memset(to, value, bytes);
        return 0;
    }
    return note_refusal(1, __builtin_return_address(0),
                        "cudaMemset of %zu bytes of memory that has fewer, or was freed", bytes);
}
}
