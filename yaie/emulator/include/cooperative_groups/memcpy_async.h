// Replaces NVIDIA's cooperative_groups/memcpy_async.h: the threads of a group share a copy.
#pragma once

#include "../cooperative_groups.h"
#include "../cuda_pipeline.h"

namespace cooperative_groups {

template <class Group, class To, class From>
EMULATOR_INLINE void memcpy_async(const Group& group, To* to, const From* from, size_t bytes) {
    const size_t words = ((size_t)to | (size_t)from) % 4 ? 0 : bytes / 4;
    for (size_t i = group.thread_rank(); i < words; i += group.size()) {
        __pipeline_memcpy_async((unsigned*)to + i, (const unsigned*)from + i, 4);
    }
    for (size_t i = words * 4 + group.thread_rank(); i < bytes; i += group.size()) {
        ((char*)to)[i] = ((const char*)from)[i];
    }
    __pipeline_commit();
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
