// Replaces NVIDIA's cooperative_groups.h: the grid, the cluster, the thread block, tiles of up to one
// warp, and the lanes that run the same code at the moment.
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

// All threads of a grid that cudaLaunchCooperativeKernel has launched.
class grid_group {
  public:
    EMULATOR_INLINE void sync() const { emulator_sync_team(1); }
    bool is_valid() const { return emulator_is_cooperative(); }
    unsigned long long num_blocks() const { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
    unsigned long long block_rank() const {
        return (1ull * blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    }
    unsigned long long num_threads() const { return num_blocks() * thread_block().size(); }
    unsigned long long size() const { return num_threads(); }
    unsigned long long thread_rank() const {
        return block_rank() * thread_block().size() + thread_block().thread_rank();
    }
    dim3 dim_blocks() const { return gridDim; }
    dim3 group_dim() const { return gridDim; }
    dim3 block_index() const { return blockIdx; }
};

EMULATOR_INLINE grid_group this_grid() { return {}; }

// All threads of a cluster, whose thread blocks reach each other's shared memory.
class cluster_group {
  public:
    EMULATOR_INLINE void sync() const { emulator_sync_team(0); }
    EMULATOR_INLINE void barrier_arrive() const { emulator_cluster_arrive(1); }
    EMULATOR_INLINE void barrier_wait() const { emulator_cluster_wait(1); }
    unsigned int block_rank() const { return emulator::cluster_rank(); }
    unsigned int num_blocks() const { return emulator::cluster_size(); }
    dim3 block_index() const { return emulator::block_in_cluster(); }
    dim3 dim_blocks() const { return emulator_cluster_dim(); }
    unsigned int num_threads() const { return num_blocks() * thread_block().size(); }
    unsigned int size() const { return num_threads(); }
    unsigned int thread_rank() const {
        return block_rank() * thread_block().size() + thread_block().thread_rank();
    }
    template <class T>
    EMULATOR_INLINE T* map_shared_rank(T* address, int rank) const {
        return (T*)emulator_map_shared((const void*)address, (uint32_t)rank);
    }
    unsigned int query_shared_rank(const void* address) const { return emulator_shared_rank(address); }
};

EMULATOR_INLINE cluster_group this_cluster() { return {}; }

// A tile of `Size` adjacent lanes of one warp; Size is a power of two.
template <unsigned int Size, class Parent = thread_block>
class thread_block_tile {
    static_assert(Size && Size <= 32 && (Size & (Size - 1)) == 0,
                  "a tile has 1, 2, 4, 8, 16 or 32 threads");

    static unsigned int rank_in_block() { return thread_block().thread_rank(); }
    static unsigned int first_lane() { return rank_in_block() % 32 / Size * Size; }
    static unsigned int own(unsigned int lanes) { return (lanes & mask()) >> first_lane(); }

  public:
    thread_block_tile() = default;
    template <class Other>
    thread_block_tile(const thread_block_tile<Size, Other>&) {}
    static unsigned int mask() {
        return (Size == 32 ? 0xffffffffu : (1u << Size % 32) - 1u) << first_lane();
    }

    EMULATOR_INLINE void sync() const { __syncwarp(mask()); }
    static constexpr unsigned int size() { return Size; }
    static constexpr unsigned int num_threads() { return Size; }
    unsigned int thread_rank() const { return rank_in_block() % Size; }
    unsigned int meta_group_rank() const { return Parent().thread_rank() / Size; }
    unsigned int meta_group_size() const { return (Parent().size() + Size - 1) / Size; }

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
    EMULATOR_INLINE unsigned int ballot(int p) const { return own(__ballot_sync(mask(), p)); }
    template <class T>
    EMULATOR_INLINE unsigned int match_any(T value) const {
        return own(__match_any_sync(mask(), value));
    }
    template <class T>
    EMULATOR_INLINE unsigned int match_all(T value, int& all_equal) const {
        return own(__match_all_sync(mask(), value, &all_equal));
    }
};

template <unsigned int Size, class Parent>
EMULATOR_INLINE thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
    return {};
}

// Any lanes of one warp, ranked by their order in it.
class coalesced_group {
    unsigned int lanes_;

    static unsigned int lane() { return thread_block().thread_rank() % 32; }
    unsigned int nth_lane(unsigned int rank) const {
        unsigned int rest = lanes_;
        while (rank--) rest &= rest - 1;
        return __builtin_ctz(rest);
    }
    unsigned int packed(unsigned int lanes) const {
        unsigned int ranks = 0;
        for (unsigned int rank = 0; rank < size(); ++rank) {
            ranks |= (lanes >> nth_lane(rank) & 1u) << rank;
        }
        return ranks;
    }

  public:
    explicit coalesced_group(unsigned int lanes) : lanes_(lanes) {}
    unsigned int mask() const { return lanes_; }
    EMULATOR_INLINE void sync() const { __syncwarp(lanes_); }
    unsigned int size() const { return __builtin_popcount(lanes_); }
    unsigned int num_threads() const { return size(); }
    unsigned int thread_rank() const {
        return __builtin_popcount(lanes_ & ((1u << lane()) - 1));
    }

    template <class T>
    EMULATOR_INLINE T shfl(T value, unsigned int rank) const {
        return __shfl_sync(lanes_, value, nth_lane(rank % size()));
    }
    template <class T>
    EMULATOR_INLINE T shfl_up(T value, unsigned int delta) const {
        const unsigned int rank = thread_rank();
        return __shfl_sync(lanes_, value, nth_lane(rank < delta ? rank : rank - delta));
    }
    template <class T>
    EMULATOR_INLINE T shfl_down(T value, unsigned int delta) const {
        const unsigned int rank = thread_rank();
        return __shfl_sync(lanes_, value, nth_lane(rank + delta < size() ? rank + delta : rank));
    }
    EMULATOR_INLINE int any(int p) const { return __any_sync(lanes_, p); }
    EMULATOR_INLINE int all(int p) const { return __all_sync(lanes_, p); }
    EMULATOR_INLINE unsigned int ballot(int p) const { return packed(__ballot_sync(lanes_, p)); }
    template <class T>
    EMULATOR_INLINE unsigned int match_any(T value) const {
        return packed(__match_any_sync(lanes_, value));
    }
};

EMULATOR_INLINE coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

// The lanes of a group that pass the same label.
template <class Group, class Label>
EMULATOR_INLINE coalesced_group labeled_partition(const Group& group, Label label) {
    return coalesced_group(__match_any_sync(group.mask(), label));
}
template <class Group>
EMULATOR_INLINE coalesced_group binary_partition(const Group& group, bool side) {
    return labeled_partition(group, (int)side);
}

// A thread block, or part of a warp, by a type that does not say which.
class thread_group {
    bool whole_block_;
    coalesced_group lanes_;

  public:
    thread_group(const thread_block&) : whole_block_(true), lanes_(0) {}
    template <class Lanes>
    thread_group(const Lanes& lanes) : whole_block_(false), lanes_(lanes.mask()) {}
    EMULATOR_INLINE void sync() const { whole_block_ ? thread_block().sync() : lanes_.sync(); }
    unsigned int size() const { return whole_block_ ? thread_block().size() : lanes_.size(); }
    unsigned int num_threads() const { return size(); }
    unsigned int thread_rank() const {
        return whole_block_ ? thread_block().thread_rank() : lanes_.thread_rank();
    }
    unsigned int mask() const { return whole_block_ ? ~0u : lanes_.mask(); }
};

// Tiles of a size known only at run time: a power of two, at most 32.
inline coalesced_group tiled_partition(const thread_group& parent, unsigned int size) {
    assert(size && size <= 32 && (size & (size - 1)) == 0);
    const unsigned int first = parent.thread_rank() % 32 / size * size;
    unsigned int lanes = 0, rest = parent.mask();
    for (unsigned int rank = 0; rest; ++rank, rest &= rest - 1) {
        if (rank / size * size == first) lanes |= rest & -rest;
    }
    return coalesced_group(lanes);
}

template <class Group>
EMULATOR_INLINE void sync(const Group& group) {
    group.sync();
}

}  // namespace cooperative_groups
