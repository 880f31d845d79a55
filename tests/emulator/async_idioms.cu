// Correct idioms of warp-specialized code. Each kernel writes out[t] = 2 * x[t] for t < 128, except
// where it says otherwise.
#include "async.cuh"

namespace {

__device__ void make(uint64_t* barrier, int arrivals) {
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, arrivals);
        fence_mbarrier_init();
    }
    __syncthreads();
}

}  // namespace

// One lane of each warp waits, or arrives for the others, which __syncwarp joins.
// <<<1, 160>>>
__global__ void one_lane_for_its_warp(const float* x, float* out) {
    __shared__ __align__(128) float tile[128];
    __shared__ uint64_t full, empty;
    int t = threadIdx.x;
    if (t == 0) mbarrier_init(&empty, 4);
    make(&full, 1);
    if (t >= 128) {
        for (int i = 0; i < 3 && t == 128; ++i) {
            wait(&empty, i + 1 & 1);
            mbarrier_arrive_expect_tx(&full, 512);
            load(tile, x, &full);
        }
        return;
    }
    for (int i = 0; i < 3; ++i) {
        if (t % 32 == 0) wait(&full, i & 1);
        __syncwarp();
        out[t] = 2 * tile[t];
        __syncwarp();
        if (t % 32 == 0) mbarrier_arrive(&empty);
    }
}

// The thread that stores fences for all, after the barrier that showed it what they wrote.
// <<<1, 128>>>
__global__ void the_issuer_fences(const float* x, float* out) {
    __shared__ __align__(128) float staged[128];
    staged[threadIdx.x] = 2 * x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x != 0) return;
    fence_proxy_async();
    store(out, staged);
    bulk_commit();
    bulk_wait(0, true);
}

// A third thread fences between the writes of a tile and its asynchronous store. It fences a second
// time, for which no thread waits: the first fence still counts.
// <<<1, 128>>>
__global__ void a_third_thread_fences(const float* x, float* out) {
    __shared__ __align__(128) float staged[128];
    staged[threadIdx.x] = 2 * x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 64) fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 64) fence_proxy_async();
    if (threadIdx.x != 0) return;
    store(out, staged);
    bulk_commit();
    bulk_wait(0, true);
}

// A flag hands on what a thread has written and fenced, in place of a barrier.
// <<<1, 128>>>
__global__ void a_flag_tells_of_the_fence(const float* x, float* out) {
    __shared__ __align__(128) float staged[128];
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 64) {
        for (int i = 0; i < 128; ++i) staged[i] = 2 * x[i];
        fence_proxy_async();
        __threadfence_block();
        flag = 1;
    }
    if (threadIdx.x != 0) return;
    while (!flag) {}
    __threadfence_block();
    store(out, staged);
    bulk_commit();
    bulk_wait(0, true);
}

// bar.arrive by those that need not wait: 32 threads hand 128 floats to 96, 32 at a time.
// <<<1, 128>>>
__global__ void hands_over(const float* x, float* out) {
    __shared__ float slot[32];
    int t = threadIdx.x;
    for (int i = 0; i < 4; ++i) {
        if (t < 32) {
            if (i) named_barrier_sync(2, 128);
            slot[t] = x[i * 32 + t];
            named_barrier_arrive(1, 128);
        } else {
            named_barrier_sync(1, 128);
            if (t < 64) out[i * 32 + t - 32] = 2 * slot[t - 32];
            if (i < 3) named_barrier_arrive(2, 128);
        }
    }
}

// The phase by its token; a thread that leaves is no longer expected.
// <<<1, 128>>>
__global__ void by_token(const float* x, float* out) {
    __shared__ float values[128];
    __shared__ uint64_t barrier;
    int t = threadIdx.x;
    make(&barrier, 128);
    values[t] = x[t];
    uint64_t token = mbarrier_arrive(&barrier);
    while (!mbarrier_wait_token(&barrier, token)) {
    }
    out[t] = 2 * values[127 - t];
    if (t >= 64) {
        mbarrier_arrive_drop(&barrier);
        return;
    }
    mbarrier_arrive(&barrier);
    wait(&barrier, 1);
    values[t] = out[127 - t];
    mbarrier_arrive(&barrier);
    wait(&barrier, 0);
    out[t] = values[63 - t] * 0 + 2 * x[t];
    out[127 - t] = 2 * x[127 - t];
}

// cp.async, for which the thread arrives once its copies have landed.
// <<<1, 128>>>
__global__ void copies_arrive(const float* x, float* out) {
    __shared__ __align__(16) float tile[128];
    __shared__ uint64_t full;
    int t = threadIdx.x;
    make(&full, 64);
    if (t >= 64) {
        for (int i = t - 64; i < 128; i += 64) start_copy(tile + i, x + i, 4, 0);
        emulator_copies_arrive(&full, 0);
        return;
    }
    wait(&full, 0);
    out[t] = 2 * tile[t];
    out[t + 64] = 2 * tile[t + 64];
}

// Two products in flight; the first is waited for when the second has been issued.
// <<<1, 128>>>
__global__ void two_products(const float* x, float* out) {
    __shared__ __align__(128) float tiles[2][128], ones[128];
    __shared__ uint64_t full;
    int t = threadIdx.x;
    float a[2] = {0, 0}, b[2] = {0, 0}, first[1] = {2}, second[1] = {1};
    ones[t] = 1;
    fence_proxy_async();
    make(&full, 1);
    if (t == 0) {
        mbarrier_arrive_expect_tx(&full, 1024);
        load(tiles[1], x, &full);
        load(tiles[0], x, &full);
    }
    wait(&full, 0);
    wgmma_fence();
    product(a, first, tiles[0], ones);
    wgmma_commit();
    product(b, second, tiles[1], ones);
    product(b, second, tiles[0], ones);
    wgmma_commit();
    wgmma_wait(1);
    out[t] = a[0];
    wgmma_wait(0);
    out[t] = (out[t] + b[0]) / 2;
}

// Stores from two stages: one may still be read while the other is written.
// <<<1, 128>>>
__global__ void two_stages(const float* x, float* out) {
    __shared__ __align__(128) float staged[2][128];
    int t = threadIdx.x;
    for (int i = 0; i < 5; ++i) {
        if (t == 0) bulk_wait(1, true);
        __syncthreads();
        staged[i % 2][t] = 2 * x[t] + 4 - i;
        fence_proxy_async();
        __syncthreads();
        if (t == 0) {
            bulk_wait(0, false);  // the stores are to one place
            store(out, staged[i % 2]);
            bulk_commit();
        }
    }
    if (t == 0) bulk_wait(0, true);
}

// A slot that is reused without an mbarrier for its end: the threads meet instead.
// <<<1, 128>>>
__global__ void meets_instead(const float* x, float* out) {
    __shared__ __align__(128) float tile[128];
    __shared__ uint64_t full;
    int t = threadIdx.x;
    make(&full, 1);
    for (int i = 0; i < 3; ++i) {
        if (t == 0) {
            mbarrier_expect_tx(&full, 512);
            load(tile, x, &full);
            mbarrier_arrive(&full);
        }
        wait(&full, i & 1);
        out[t] = 2 * tile[127 - t] * 0 + 2 * tile[t];
        __syncthreads();
    }
    if (t == 0) mbarrier_inval(&full);
    __syncthreads();
    if (t == 0) mbarrier_init(&full, 128);
    __syncthreads();
    mbarrier_arrive(&full);
    wait(&full, 0);
}
