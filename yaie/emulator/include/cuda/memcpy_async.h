// cuda::memcpy_async: asynchronous copies that a barrier or a pipeline completes.
#pragma once

#include "../cooperative_groups.h"
#include "../cuda_pipeline.h"

namespace cuda {

template <size_t Alignment>
struct aligned_size_t {
    size_t value;
    constexpr explicit aligned_size_t(size_t bytes) : value(bytes) {}
    constexpr operator size_t() const { return value; }
};

template <class Sync>
EMULATOR_INLINE void bind_copies(Sync&) {}

// By one thread, or shared by the threads of a group; `Sync` is a barrier or a pipeline.
template <class To, class From, class Sync>
EMULATOR_INLINE void memcpy_async(To* to, const From* from, size_t bytes, Sync& sync) {
    const size_t words = ((size_t)to | (size_t)from) % 4 ? 0 : bytes / 4;
    for (size_t i = 0; i < words; ++i) {
        __pipeline_memcpy_async((unsigned*)to + i, (const unsigned*)from + i, 4);
    }
    bind_copies(sync);
    for (size_t i = words * 4; i < bytes; ++i) ((char*)to)[i] = ((const char*)from)[i];
}
template <class Group, class To, class From, class Sync>
EMULATOR_INLINE void memcpy_async(const Group& group, To* to, const From* from, size_t bytes, Sync& sync) {
    const size_t words = ((size_t)to | (size_t)from) % 4 ? 0 : bytes / 4;
    for (size_t i = group.thread_rank(); i < words; i += group.size()) {
        __pipeline_memcpy_async((unsigned*)to + i, (const unsigned*)from + i, 4);
    }
    bind_copies(sync);
    for (size_t i = words * 4 + group.thread_rank(); i < bytes; i += group.size()) {
        ((char*)to)[i] = ((const char*)from)[i];
    }
}

}  // namespace cuda
