// Boxes of tensors as TMA moves them.
#pragma once

#include <vector>

#include "../include/emulator/async.h"
#include "../include/emulator/engines.h"

namespace emulator {

// The bytes that a copy writes in shared memory, or reads there; those past a tensor's end included.
size_t box_bytes(const TensorMap& map);
// The bytes inside the tensor that a copy reads or writes in global memory.
std::vector<Span> box_spans(const TensorBox& box);
void copy_box(const TensorBox& box);  // moves the bytes

// Where the swizzle puts the 16-byte chunk of an address in shared memory.
inline uintptr_t swizzled(uintptr_t address, int chunks_log2) {
    return address ^ ((address >> 7 & ((1u << chunks_log2) - 1)) << 4);
}

}  // namespace emulator
