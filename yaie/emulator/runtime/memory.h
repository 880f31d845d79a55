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

}  // namespace emulator
