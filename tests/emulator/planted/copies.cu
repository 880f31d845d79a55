// Asynchronous copies land as late as allowed: what does not wait for them is found.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

//: one_copy
//= (out[:64] == x[:64].flip(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ __align__(16) float s[64];
    int t = threadIdx.x;
    if (t < 16) __pipeline_memcpy_async(&s[t * 4], &x[t * 4], 16);  // @copy
    //! misaligned: if (t < 16) __pipeline_memcpy_async(&s[t * 4], &x[t * 4 + 1], 16);
    //! misaligned: if (t < 15) __pipeline_memcpy_async(&s[t * 4 + 2], &x[t * 4], 16);
    //! misaligned: if (t < 16) __pipeline_memcpy_async(&s[t * 4], &x[t * 4 + 2], 16, 8);
    //! out_of_bounds: if (t < 32) __pipeline_memcpy_async(&s[t * 2 + 2], &x[t * 2], 8);
    //! out_of_bounds: if (t < 16) __pipeline_memcpy_async(&s[t * 4], &x[t * 4 + 40], 16);
    //! pending_copy: if (t < 16) { __pipeline_memcpy_async(&s[t * 4], &x[t * 4], 16); s[t * 4] = 0; }
    //! pending_copy: if (t < 16) { __pipeline_memcpy_async(&s[t * 4], &x[t * 4], 16); s[t] = 0; }
    __pipeline_commit();
    //! pending_copy @read:
    __pipeline_wait_prior(0);
    //! pending_copy @read:
    //! pending_copy @read: __pipeline_wait_prior(1);
    __syncthreads();
    //! race @read:
    out[t] = s[63 - t];  // @read
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: ring
// A ring of three stages; two copies of a thread are in flight while it adds up the third.
//= (out[:8] == x[:96].view(3, 4, 8).sum((0, 1))).all()
constexpr int STAGES = 3, THREADS = 8;
__global__ void k(float* x, float* out, int tiles) {
    __shared__ __align__(16) float stages[STAGES][THREADS * 4];
    int t = threadIdx.x;
    auto start = [&](int tile) {
        int zeros = tile < tiles ? 0 : 16;
        float* to = &stages[tile % STAGES][t * 4];
        __pipeline_memcpy_async(to, x + (zeros ? 0 : tile) * THREADS * 4 + t * 4, 16, zeros);  // @copy
        __pipeline_commit();
        //! pending_copy @read:
        //! pending_copy @read: if (!zeros) __pipeline_commit();
        //! pending_copy @read: if (tile % 2) __pipeline_commit();
    };
    float sum = 0;
    for (int tile = 0; tile < STAGES - 1; ++tile) start(tile);
    //! pending_copy: for (int tile = 0; tile < STAGES - 1; ++tile) start(tile); x[t * 4] = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        __pipeline_wait_prior(STAGES - 2); __syncthreads();
        //! pending_copy @read: __pipeline_wait_prior(STAGES - 1); __syncthreads();
        //! pending_copy @read: __syncthreads();
        //! pending_copy: sum += 0 * stages[tile % STAGES][t * 4]; __syncthreads();
        //! race|pending_copy @read: __syncthreads(); __pipeline_wait_prior(STAGES - 2);
        //! race @read: __pipeline_wait_prior(STAGES - 2);
        start(tile + STAGES - 1);
        //! pending_copy @read: start(tile + STAGES);
        //! pending_copy @copy: start(tile + STAGES - 1); start(tile + STAGES - 1);
        //! pending_copy: start(tile + STAGES - 1); stages[(tile + 2) % STAGES][t] = 0;
        for (int i = 0; i < 4; ++i) sum += stages[tile % STAGES][i * THREADS + t];  // @read
    }
    __pipeline_wait_prior(0);
    //! pending_copy @last:
    __syncthreads();
    //! race|pending_copy @last:
    stages[0][t] = sum;  // @last
    __syncthreads();
    out[t] = stages[0][t];
}
RUN k<<<1, THREADS, 0, stream>>>((float*)x, out, 3);

//: pipeline_of_a_thread
//= (out[:32] == x[:96].view(3, 32).flip(1).sum(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ float tile[2][32];
    auto pipe = cuda::make_pipeline();
    int t = threadIdx.x;
    auto load = [&](int part) {
        pipe.producer_acquire();
        if (part < 3) cuda::memcpy_async(&tile[part % 2][t], &x[part * 32 + t], sizeof(float), pipe);
        pipe.producer_commit();
        //! pending_copy @read:
    };
    float sum = 0;
    load(0);
    load(1);
    //! uninitialized @read:
    for (int part = 0; part < 3; ++part) {
        pipe.consumer_wait();
        //! pending_copy @read:
        __syncthreads();
        //! pending_copy @read:
        sum += tile[part % 2][31 - t];  // @read
        __syncthreads();
        //! pending_copy @read:
        pipe.consumer_release();
        load(part + 2);
    }
    out[t] = sum;
}
RUN k<<<1, 32, 0, stream>>>(x, out);

//: copies_of_a_group
//= (out[:64] == x[:64].flip(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ __align__(16) float s[64];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, x, sizeof(s));
    //! out_of_bounds: cg::memcpy_async(block, s, x + 48, sizeof(s));
    cg::wait(block);
    //! pending_copy @read:
    //! pending_copy @read: block.sync();
    out[threadIdx.x] = s[63 - threadIdx.x];  // @read
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: copy_with_a_barrier
//= (out[:64] == x[:64].flip(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ Barrier ready;
    __shared__ float tile[64];
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&ready, block.size());
    //! deadlock @wait: if (block.thread_rank() == 0) init(&ready, block.size() + 1);
    //! pending_copy|deadlock @read: if (block.thread_rank() == 0) init(&ready, block.size() - 1);
    block.sync();
    cuda::memcpy_async(block, tile, x, sizeof(tile), ready);
    ready.arrive_and_wait();  // @wait
    //! pending_copy @read: (void)ready.arrive();
    //! race|pending_copy|deadlock: if (threadIdx.x) ready.arrive_and_wait();
    out[threadIdx.x] = tile[63 - threadIdx.x];  // @read
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: barrier_of_a_device
// If 63 are expected and 64 arrive, one thread may only wait: it has not released what it wrote.
//= (out[:64] == x[:64].flip(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ cuda::barrier<cuda::thread_scope_device> ready;
    __shared__ float tile[64];
    if (threadIdx.x == 0) init(&ready, 64);
    //! race+time_limit @tile: if (threadIdx.x == 0) init(&ready, 63);
    __syncthreads();
    tile[threadIdx.x] = x[threadIdx.x];  // @tile
    ready.arrive_and_wait();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: producer_and_consumer
// Warp 0 produces, warp 1 consumes.
//= (out[:32] == x[:96].view(3, 32).flip(1).sum(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ Barrier full, empty;
    __shared__ float slot[32];
    if (threadIdx.x == 0) {
        init(&full, 64);
        init(&empty, 64);
    }
    __syncthreads();
    int lane = threadIdx.x % 32;
    float sum = 0;
    for (int round = 0; round < 3; ++round) {
        if (threadIdx.x < 32) {
            if (round) empty.arrive_and_wait();  // @full
            //! deadlock @full:
            //! deadlock @full: if (round) (void)empty.arrive();
            slot[lane] = x[round * 32 + lane];  // @slot
            (void)full.arrive();
            //! deadlock @full:
        } else {
            full.arrive_and_wait();  // @full
            //! race|deadlock @slot: (void)full.arrive();
            sum += slot[31 - lane]; if (round < 2) (void)empty.arrive();
            //! deadlock @full: sum += slot[31 - lane];
            //! race @slot: if (round < 2) (void)empty.arrive(); sum += slot[31 - lane];
        }
    }
    if (threadIdx.x >= 32) out[lane] = sum;
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: stages
// A pipeline of the whole thread block: two stages, filled by all threads.
//= (out[:32] == x[:96].view(3, 32).sum(0).flip(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ float tile[2][32];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    float sum = 0;
    for (int part = 0, next = 0; part < 3; ++part) {
        for (; next < 3 && next < part + 2; ++next) {
            pipe.producer_acquire();  // @acquire
            //! race|pending_copy @copy @read:
            cuda::memcpy_async(block, tile[next % 2], x + next * 32, 128, pipe);  // @copy
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        //! race|pending_copy @read:
        sum += tile[part % 2][31 - threadIdx.x];  // @read
        pipe.consumer_release();
        //! deadlock @acquire:
    }
    out[threadIdx.x] = sum;
}
RUN k<<<1, 32, 0, stream>>>(x, out);
