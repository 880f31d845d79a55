// cudaMalloc, cudaMemcpy and cudaMemset, as launchers use them.
#include <stdlib.h>
#include <string.h>

#include <mutex>

#include "checker.h"
#include "grid.h"

using namespace emulator;

namespace {

constexpr int allocated = -4;  // the checker's id for such a range
constexpr size_t alignment = 256;

int remember(int error) {
    if (error) set_error(error);
    return error;
}

}  // namespace

extern "C" {

int emulator_allocate(void** pointer, size_t bytes) {
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    *pointer = bytes ? aligned_alloc(alignment, rounded + alignment) : nullptr;
    if (bytes && !*pointer) return remember(2);
    if (bytes && checker.active) checker.add_range(*pointer, bytes, allocated);
    return 0;
}

int emulator_free(void* pointer) {
    if (pointer && checker.active) checker.remove_range(pointer);
    free(pointer);
    return 0;
}

int emulator_copy(void* to, const void* from, size_t bytes, int kind) {
    if (kind < 0 || kind > 4 || (bytes && (!to || !from))) return remember(1);
    if (!checker.host_range_is_valid(to, bytes) || !checker.host_range_is_valid(from, bytes)) {
        return remember(1);
    }
    memmove(to, from, bytes);
    return 0;
}

int emulator_set(void* to, int value, size_t bytes) {
    if (bytes && (!to || !checker.host_range_is_valid(to, bytes))) return remember(1);
    memset(to, value, bytes);
    return 0;
}
}
