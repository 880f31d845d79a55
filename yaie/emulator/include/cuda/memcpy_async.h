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
    emulator::copy_share(to, from, bytes, 0, 1);
    bind_copies(sync);
}
template <class Group, class To, class From, class Sync>
EMULATOR_INLINE void memcpy_async(const Group& group, To* to, const From* from, size_t bytes, Sync& sync) {
    emulator::copy_share(to, from, bytes, group.thread_rank(), group.size());
    bind_copies(sync);
}

}  // namespace cuda
