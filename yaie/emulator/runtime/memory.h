// Memory from cudaMalloc, cudaMallocHost and cudaMallocManaged.
#pragma once

#include <stddef.h>

#include <vector>

namespace emulator {

struct Allocation {
    void* begin;
    size_t bytes;
    bool on_host;  // the host reads and writes it as well
};

extern std::vector<Allocation> allocations;  // that were not freed, of all calls

// Inaccessible bytes before and after each allocation: an access that misses it by less hits no other.
constexpr size_t allocation_gap = 1 << 23;
const Allocation* allocation_near(const void* address);
void release(const Allocation& one);

}  // namespace emulator
