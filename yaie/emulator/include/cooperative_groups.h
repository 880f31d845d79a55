// Replaces NVIDIA's cooperative_groups.h: the thread block, and tiles of up to one warp.
#pragma once

#include "cuda_runtime.h"

namespace cooperative_groups {

class thread_block {
  public:
    EMULATOR_INLINE void sync() const { __syncthreads(); }
    unsigned int size() const { return blockDim.x * blockDim.y * blockDim.z; }
    unsigned int num_threads() const { return size(); }
    unsigned int thread_rank() const {
        return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    }
    dim3 group_index() const { return blockIdx; }
    dim3 thread_index() const { return threadIdx; }
    dim3 dim_threads() const { return blockDim; }
};

EMULATOR_INLINE thread_block this_thread_block() { return {}; }

// A tile of `Size` adjacent lanes of one warp; Size is a power of two.
template <unsigned int Size, class Parent = thread_block>
class thread_block_tile {
    static_assert(Size && Size <= 32 && (Size & (Size - 1)) == 0,
                  "a tile has 1, 2, 4, 8, 16 or 32 threads");

    static unsigned int rank_in_block() { return thread_block().thread_rank(); }
    static unsigned int first_lane() { return rank_in_block() % 32 / Size * Size; }
    static unsigned int mask() {
        return (Size == 32 ? 0xffffffffu : (1u << Size % 32) - 1u) << first_lane();
    }

  public:
    EMULATOR_INLINE void sync() const { __syncwarp(mask()); }
    static constexpr unsigned int size() { return Size; }
    static constexpr unsigned int num_threads() { return Size; }
    unsigned int thread_rank() const { return rank_in_block() % Size; }
    unsigned int meta_group_rank() const { return rank_in_block() / Size; }
    unsigned int meta_group_size() const { return (thread_block().size() + Size - 1) / Size; }

    template <class T>
    EMULATOR_INLINE T shfl(T value, int lane) const {
        return __shfl_sync(mask(), value, lane, Size);
    }
    template <class T>
    EMULATOR_INLINE T shfl_up(T value, unsigned int delta) const {
        return __shfl_up_sync(mask(), value, delta, Size);
    }
    template <class T>
    EMULATOR_INLINE T shfl_down(T value, unsigned int delta) const {
        return __shfl_down_sync(mask(), value, delta, Size);
    }
    template <class T>
    EMULATOR_INLINE T shfl_xor(T value, unsigned int lanes) const {
        return __shfl_xor_sync(mask(), value, lanes, Size);
    }
    EMULATOR_INLINE int any(int p) const { return __any_sync(mask(), p); }
    EMULATOR_INLINE int all(int p) const { return __all_sync(mask(), p); }
    EMULATOR_INLINE unsigned int ballot(int p) const {
        return __ballot_sync(mask(), p) >> first_lane();
    }
};

template <unsigned int Size, class Parent>
EMULATOR_INLINE thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
    return {};
}

template <class Group>
EMULATOR_INLINE void sync(const Group& group) {
    group.sync();
}

}  // namespace cooperative_groups
