// cudaMalloc, cudaMemcpy and cudaMemset, as launchers use them.
#include <stdlib.h>
#include <string.h>

#include "grid.h"
#include "observer.h"

using namespace emulator;

namespace {

constexpr size_t alignment = 256;

int remember(int error) {
    if (error) set_error(error);
    return error;
}

bool is_valid(const void* begin, size_t bytes) {
    return !observer || observer->host_range_is_valid(begin, bytes);
}

}  // namespace

extern "C" {

int emulator_allocate(void** pointer, size_t bytes) {
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    *pointer = bytes ? aligned_alloc(alignment, rounded + alignment) : nullptr;
    if (bytes && !*pointer) return remember(2);
    if (bytes && observer) observer->allocated(*pointer, bytes);
    return 0;
}

int emulator_free(void* pointer) {
    if (pointer && observer) observer->freed(pointer);
    free(pointer);
    return 0;
}

int emulator_copy(void* to, const void* from, size_t bytes, int kind) {
    if (kind < 0 || kind > 4 || (bytes && (!to || !from))) return remember(1);
    if (!is_valid(to, bytes) || !is_valid(from, bytes)) return remember(1);
    memmove(to, from, bytes);
    return 0;
}

int emulator_set(void* to, int value, size_t bytes) {
    if (bytes && (!to || !is_valid(to, bytes))) return remember(1);
    memset(to, value, bytes);
    return 0;
}
}
