// Replaces NVIDIA's cooperative_groups/memcpy_async.h: the threads of a group share a copy.
#pragma once

#include "../cooperative_groups.h"
#include "../cuda_pipeline.h"

namespace cooperative_groups {

template <class Group, class To, class From>
EMULATOR_INLINE void memcpy_async(const Group& group, To* to, const From* from, size_t bytes) {
    emulator::copy_share(to, from, bytes, group.thread_rank(), group.size());
    __pipeline_commit();
}

// Counts are in elements; the smaller of the two counts is copied.
template <class Group, class T>
EMULATOR_INLINE void memcpy_async(const Group& group, T* to, size_t to_count, const T* from,
                                  size_t from_count) {
    memcpy_async(group, to, from, sizeof(T) * (to_count < from_count ? to_count : from_count));
}

template <unsigned int Stages, class Group>
EMULATOR_INLINE void wait_prior(const Group& group) {
    __pipeline_wait_prior(Stages);
    group.sync();
}
template <class Group>
EMULATOR_INLINE void wait(const Group& group) {
    wait_prior<0>(group);
}

}  // namespace cooperative_groups
