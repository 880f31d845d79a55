// Replaces NVIDIA's cuda_pipeline.h: asynchronous copies to shared memory.
#pragma once

#include "cuda_runtime.h"

// Copies 4, 8 or 16 bytes, the last `zeros` of which become zero.
EMULATOR_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t size,
                                             size_t zeros = 0) {
    emulator::start_copy(to, from, size, zeros);
}
namespace emulator {
// What the thread `rank` of `size` copies of `bytes`: words asynchronously, what is not aligned by itself.
EMULATOR_INLINE void copy_share(void* to, const void* from, size_t bytes, size_t rank, size_t size) {
    const size_t words = ((size_t)to | (size_t)from) % 4 ? 0 : bytes / 4;
    for (size_t i = rank; i < words; i += size) {
        __pipeline_memcpy_async((unsigned*)to + i, (const unsigned*)from + i, 4);
    }
    for (size_t i = words * 4 + rank; i < bytes; i += size) ((char*)to)[i] = ((const char*)from)[i];
}
}  // namespace emulator
EMULATOR_INLINE void __pipeline_commit() { emulator_commit_copies(); }
EMULATOR_INLINE void __pipeline_wait_prior(size_t pending) { emulator_wait_copies(pending); }
