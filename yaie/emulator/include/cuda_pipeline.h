// Replaces NVIDIA's cuda_pipeline.h: asynchronous copies to shared memory. Here each copy completes
// immediately, so a missing wait is not noticed.
#pragma once

#include "cuda_runtime.h"

template <class Word>
EMULATOR_INLINE void emulator_copy_words(void* to, const void* from, size_t words, size_t zeros) {
    for (size_t i = 0; i < words; ++i) {
        static_cast<Word*>(to)[i] = i < words - zeros ? static_cast<const Word*>(from)[i] : Word{};
    }
}

// Copies 4, 8 or 16 bytes, the last `zeros` of which become zero.
EMULATOR_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t size,
                                             size_t zeros = 0) {
    if (zeros % size == 0) {
        const size_t none = zeros / size;
        if (size == 16) return emulator_copy_words<uint4>(to, from, 1, none);
        if (size == 8) return emulator_copy_words<uint2>(to, from, 1, none);
    }
    emulator_copy_words<unsigned int>(to, from, size / 4, zeros / 4);
}
EMULATOR_INLINE void __pipeline_commit() {}
EMULATOR_INLINE void __pipeline_wait_prior(size_t) {}
