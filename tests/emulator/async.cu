// A warp-specialized kernel: one thread of the first warp group loads tiles, the second warp group
// multiplies them and stores sums, the third gives its registers up.
#include "async.cuh"

constexpr int STAGES = 2, TILES = 5;

__global__ void pipeline(const float* x, const float* w, float* out, int rounds) {
    __shared__ __align__(128) float tile[STAGES][128], weights[128], staged[128];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    int t = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], 128);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        setmaxnreg(false, 56);
        for (int i = 0; i < rounds * TILES && threadIdx.x == 0; ++i) {
            int stage = i % STAGES, phase = i / STAGES % 2;
            wait(&empty[stage], phase ^ 1);
            mbarrier_arrive_expect_tx(&full[stage], 512);
            load(tile[stage], x + i * 128, &full[stage]);
        }
        return;
    }
    if (threadIdx.x >= 256) {
        setmaxnreg(false, 24);
        return;
    }
    setmaxnreg(true, 256);
    weights[t] = w[t];
    fence_proxy_async();
    named_barrier_sync(1, 128);
    float sums[2], scale[1];
    for (int round = 0; round < rounds; ++round) {
        sums[0] = sums[1] = 0;
        for (int i = round * TILES; i < (round + 1) * TILES; ++i) {
            int stage = i % STAGES, phase = i / STAGES % 2;
            scale[0] = i + 1;
            wait(&full[stage], phase);
            wgmma_fence();
            product(sums, scale, tile[stage], weights);
            wgmma_commit();
            wgmma_wait(0);
            mbarrier_arrive(&empty[stage]);
        }
        if (t == 0) bulk_wait(0, true);
        named_barrier_sync(2, 128);
        staged[t] = sums[0] + 2 * sums[1];
        fence_proxy_async();
        named_barrier_sync(3, 128);
        if (t == 0) {
            store(out + round * 128, staged);
            bulk_commit();
        }
    }
    if (t == 0) bulk_wait(0, false);
}
