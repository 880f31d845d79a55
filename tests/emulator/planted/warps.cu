// Warps and thread blocks: masks, shuffles, votes, groups, barriers that not all threads reach.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#define FULL 0xffffffffu
namespace cg = cooperative_groups;

//: exchange
//= (out[:32] == x[:32].flip(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncwarp();
    //! race @read:
    //! race @read: __syncwarp(t < 16 ? 0x0000ffff : 0xffff0000);
    //! race @read: __threadfence_block();
    //! wrong_mask+race: __syncwarp(0x0000ffff);
    //! race @read: if (t < 16) __syncwarp(); else __syncwarp(0xffff0000);
    out[t] = s[t ^ 31];  // @read
    //! uninitialized: out[t] = s[t ^ 63];
}
RUN k<<<1, 32, 0, stream>>>(x, out);
//! uninitialized @read: k<<<1, 33, 0, stream>>>(x, out);
//! race @read: k<<<2, 32, 0, stream>>>(x, out);

//: volatile_reduction
// volatile does not make the lanes of a warp wait for one another.
//= out[0] == x[:64].sum()
__global__ void k(const float* x, float* out) {
    __shared__ volatile float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    s[t + 32] = x[t + 32];
    __syncwarp();
    for (int half = 32; half > 0; half /= 2) {
        if (t < half) s[t] = s[t] + s[t + half];  // @sum
        __syncwarp();
        //! race @sum:
        //! race @sum: if (half > 2) __syncwarp();
    }
    if (t == 0) out[0] = s[0];
}
RUN k<<<1, 32, 0, stream>>>(x, out);

//: warp_sum
//= out[0] == x[:32].sum() and out[1] == x[32:64].sum()
__global__ void k(const float* x, float* out) {
    int t = threadIdx.x;
    float v = x[t];
    //! inactive_lane @shuffle: if (t >= 56) return; float v = x[t];
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(FULL, v, step);  // @shuffle
    //! wrong_mask: for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0x0000ffffu, v, step, 16);
    //! wrong_mask+deadlock: v += __shfl_xor_sync(1u << (t + 1) % 32, v, 0);
    //! inactive_lane: if (t % 32 < 24) for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0x00ffffffu, v, step);
    //! deadlock: if (t % 32 < 16) v += __shfl_xor_sync(FULL, v, 1); else __syncthreads();
    //! inactive_lane: for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(t % 32 < 16 ? FULL : 0xffff0000u, v, step);
    //! inactive_lane: if (t % 2) v += __shfl_xor_sync(FULL, v, 1);
    //! divergent_barrier: if (t % 32 == 0) __syncthreads();
    //! inactive_lane: v += __shfl_sync(__activemask() & 0x55555555u | 1u << t % 32, v, 1);
    if (t % 32 == 0) out[t / 32] = v;
}
RUN k<<<1, 64, 0, stream>>>(x, out);
//! inactive_lane @shuffle: k<<<1, 40, 0, stream>>>(x, out);
//! inactive_lane @shuffle: k<<<1, 1, 0, stream>>>(x, out);

//: half_warps
//= (out[:64].view(4, 16) == x[:64].view(4, 16).sum(1, keepdim=True)).all()
__global__ void k(const float* x, float* out) {
    float v = x[threadIdx.x];
    unsigned mask = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
    //! wrong_mask+deadlock @sum: unsigned mask = 0x0000ffffu;
    //! wrong_mask+deadlock @sum: unsigned mask = threadIdx.x % 32 < 16 ? 0xffff0000u : 0x0000ffffu;
    //! deadlock @sum: unsigned mask = threadIdx.x % 32 < 16 ? 0x0000ffffu : FULL;
    //! inactive_lane @sum: unsigned mask = threadIdx.x % 32 < 8 ? 0x000000ffu : 0xffffff00u;
    for (int step = 8; step > 0; step /= 2) v += __shfl_xor_sync(mask, v, step);  // @sum
    //! inactive_lane: for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(mask, v, step);
    //! divergent_collective: if (threadIdx.x % 2) v += __shfl_up_sync(mask, v, 1); else v += __shfl_down_sync(mask, v, 1);
    __syncthreads();
    out[threadIdx.x] = v;
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: votes
//= out[0] == 40
__global__ void k(const float* x, float* out) {
    int t = threadIdx.x;
    bool counts = x[t] <= 40;
    unsigned ballot = __ballot_sync(FULL, counts);
    //! divergent_barrier+deadlock: unsigned ballot = counts ? __ballot_sync(FULL, 1) : (__syncthreads(), 0u);
    //! wrong_mask+deadlock: unsigned ballot = __ballot_sync(0xfffffffeu, counts);
    //! divergent_collective: unsigned ballot = counts ? __ballot_sync(FULL, 1) : __any_sync(FULL, 0);
    __shared__ int parts[2];
    if (t % 32 == 0) parts[t / 32] = __popc(ballot);
    //! race: parts[t / 32] = __popc(ballot) + t;
    __syncthreads();
    //! race @out: __syncwarp();
    if (t == 0) out[0] = parts[0] + parts[1];  // @out
    //! out_of_bounds: if (t == 0) out[0] = parts[0] + parts[2];
}
RUN k<<<1, 64, 0, stream>>>(x, out);
//! uninitialized @out: k<<<1, 32, 0, stream>>>(x, out);

//: barriers
//= (out[:64] == x[:64].flip(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    //! divergent_barrier @barrier: if (threadIdx.x >= 60) return; int t = threadIdx.x; s[63 - t % 4] = 0;
    s[t] = x[t];
    //! divergent_barrier: if (t < 32) { s[t] = x[t]; __syncthreads(); } else { s[t] = x[t]; }
    //! divergent_barrier @barrier: if (x[t] > 32) { s[t] = x[t]; __syncthreads(); } else { s[t] = x[t]; __syncwarp(); }
    __syncthreads();  // @barrier
    //! divergent_barrier: for (int i = 0; i < 1 + t / 32; ++i) __syncthreads();
    //! divergent_barrier+race: if (t) __syncthreads();
    //! deadlock: if (t % 32 < 16) __syncthreads(); else __syncwarp();
    out[t] = s[63 - t];
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: warp_leaves
// A warp may leave, if no barrier follows.
//= (out[:32] == x[:32]).all() and (out[32:] == 0).all()
__global__ void k(const float* x, float* out) {
    if (threadIdx.x >= 32) return;
    float v = x[threadIdx.x];
    //! divergent_barrier: float v = x[threadIdx.x]; __syncthreads();
    out[threadIdx.x] = v;
}
RUN k<<<1, 96, 0, stream>>>(x, out);

//: tiles
//= (out[:64].view(8, 8) == x[:64].view(8, 8).flip(1)).all()
__global__ void k(const float* x, float* out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    s[t] = x[t];
    tile.sync();
    //! race @read:
    //! divergent_collective+race: if (t % 2) tile.sync(); else tile.any(t);
    out[t] = s[t ^ 7];  // @read
    //! race: out[t] = s[t ^ 15];
    //! race: out[t] = s[(t + 1) % 64];
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: block_group
//= (out[:64] == x[:64].flip(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ float s[64];
    auto block = cg::this_thread_block();
    int t = block.thread_rank();
    s[t] = x[t];
    block.sync();
    //! race @read:
    //! divergent_barrier+race: if (t < 63) block.sync();
    //! race @read: cg::tiled_partition<32>(block).sync();
    //! race @read: cg::coalesced_threads().sync();
    out[t] = s[63 - t];  // @read
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: all_lanes_store
// Every lane of a warp may store the same value.
//= out[0] == 1
__global__ void k(const float* x, float* out) {
    out[0] = x[0];
    //! race: out[0] = x[threadIdx.x];
    //! race: out[0] = x[0]; if (threadIdx.x == 7) out[0] = 2;
    //! race: out[threadIdx.x / 2] = threadIdx.x;
}
RUN k<<<1, 32, 0, stream>>>(x, out);

//: polls_its_warp
// Lane 31 produces, the others of its warp poll.
//= (out[:31] == 32).all()
__global__ void k(const float* x, float* out) {
    __shared__ volatile int flag;
    __shared__ float data;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 31) {
        data = x[31];
        __threadfence_block();
        //! race @read:
        flag = 1;
        //! time_limit @poll: flag = 0;
    } else {
        while (flag == 0) __nanosleep(20);  // @poll
        //! race? @read: if (flag == 2) return;
        __threadfence_block();
        //! race @read:
        out[threadIdx.x] = data;  // @read
    }
}
RUN k<<<1, 32, 0, stream>>>(x, out);

//: lock_between_lanes
//= out[0] == x[:32].sum()
__global__ void k(const float* x, float* out) {
    __shared__ int lock;
    if (threadIdx.x == 0) lock = 0;
    __syncwarp();
    //! race @lock:
    for (bool done = false; !done;) {
        if (atomicCAS(&lock, 0, 1) == 0) {  // @lock
            __threadfence_block();
            out[0] += x[threadIdx.x];  // @sum
            __threadfence_block();
            //! race @sum:
            atomicExch(&lock, 0);
            //! time_limit @lock:
            done = true;
        }
    }
}
RUN k<<<1, 32, 0, stream>>>(x, out);

//: active_lanes
// Lanes in a branch ask which of them are there, and one adds for all.
//= out[0] == 20
__global__ void k(const float* x, float* out) {
    if (x[threadIdx.x] > 20) return;
    unsigned active = __activemask();
    int leader = __ffs(active) - 1, lane = threadIdx.x % 32;
    float old = 0;
    if (lane == leader) old = atomicAdd(out, (float)__popc(active));
    //! race: if (lane == leader) old = out[0] += (float)__popc(active); out[0] = lane;
    old = __shfl_sync(active, old, leader);
    //! inactive_lane: old = __shfl_sync(active, old, 31);
    out[1 + threadIdx.x] = old;
}
RUN cudaMemsetAsync(out, 0, 4, stream); k<<<1, 64, 0, stream>>>(x, out);

//: updates
//= (out[:3] == torch.tensor([64., 63, 1])).all()
__global__ void k(const float* x, volatile float* out, int n) {
    __shared__ int lock;
    __shared__ volatile float turn;
    if (threadIdx.x == 0) lock = 0, turn = 0;
    __syncthreads();
    float mine = threadIdx.x;
    while (atomicExch(&lock, 1)) __nanosleep(20);
    __threadfence();
    out[0] = out[0] + 1;
    //! race: atomicExch(&lock, 0); out[0] = out[0] + 1;
    __threadfence();
    atomicExch(&lock, 0);
    if (out[2] == 0) out[2] = 1;  // the same value of all
    if (threadIdx.x % 32 == 0) {  // two warps take turns
        for (int i = 0; i < 2; ++i) {
            while ((int)turn % 2 != threadIdx.x / 32);
            turn = turn + 1;
        }
    }
    atomicAdd((float*)&out[1], mine == 63 ? 63.f : 0.f);
    //! race?: if (out[1] < mine) out[1] = mine;
}
RUN k<<<1, 64, 0, stream>>>(x, out, n);

//: tensor_cores
// Each lane names a row for ldmatrix, and mma.sync multiplies what all lanes hold.
//= (out[:32] == 16).all()
__global__ void k(const float* x, float* out) {
    __shared__ alignas(16) unsigned rows[128];
    int t = threadIdx.x;
    for (int i = t; i < 128; i += 32) rows[i] = 0x3c003c00;  // 1 and 1
    __syncwarp();
    //! race @load:
    unsigned row = (unsigned)__cvta_generic_to_shared(&rows[t * 4]), a[4], b[2];
    float d[4] = {};
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(b[0]), "=r"(b[1]) : "r"(row));  // @load
    if (t > 31) return;
    //! inactive_lane @multiply: if (t > 30) return;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));  // @multiply
    out[t] = d[0];
}
RUN k<<<1, 32, 0, stream>>>(x, out);
