// Replaces NVIDIA's cuda_pipeline.h: asynchronous copies to shared memory.
#pragma once

#include "cuda_runtime.h"

// Copies 4, 8 or 16 bytes, the last `zeros` of which become zero.
EMULATOR_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t size,
                                             size_t zeros = 0) {
    emulator::start_copy(to, from, size, zeros);
}
EMULATOR_INLINE void __pipeline_commit() { emulator_commit_copies(); }
EMULATOR_INLINE void __pipeline_wait_prior(size_t pending) { emulator_wait_copies(pending); }
