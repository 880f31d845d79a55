// libcu++'s barriers of a thread block, at which only some threads may wait.
#include <cooperative_groups.h>
#include <cuda/barrier>

namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

// <<<2, 96, 0>>>
__global__ void shared_copy(const int* x, int* out) {
    __shared__ Barrier ready;
    __shared__ int tile[96];
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&ready, block.size());
    block.sync();
    for (int round = 0; round < 3; ++round) {
        cuda::memcpy_async(block, tile, x + (blockIdx.x * 3 + round) * 96, sizeof(tile), ready);
        ready.arrive_and_wait();
        int value = tile[95 - threadIdx.x];
        out[(blockIdx.x * 3 + round) * 96 + threadIdx.x] = value;
        Barrier::arrival_token token = ready.arrive();
        ready.wait(static_cast<Barrier::arrival_token&&>(token));
    }
}

// Warp 0 produces, warps 1 and 2 consume.
// <<<1, 96, 0>>>
__global__ void specialized(const int* x, int* out, int rounds) {
    __shared__ Barrier full, empty;
    __shared__ int slot[32];
    if (threadIdx.x == 0) {
        init(&full, 96);
        init(&empty, 96);
    }
    __syncthreads();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int round = 0; round < rounds; ++round) {
        if (warp == 0) {
            if (round) empty.arrive_and_wait();
            slot[lane] = x[round * 32 + lane] * 2;
            (void)full.arrive();
        } else {
            full.arrive_and_wait();
            out[(round * 2 + warp - 1) * 32 + lane] = slot[31 - lane] + warp;
            if (round + 1 < rounds) (void)empty.arrive();
        }
    }
}
