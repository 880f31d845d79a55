// libcu++'s pipelines: for one thread, for a thread block, and for a warp that produces for another.
#include <cooperative_groups.h>
#include <cuda/pipeline>

#pragma nv_diag_suppress static_var_with_dynamic_init

// Two stages, filled while the one before is used.
// <<<1, 64, 0>>>
__global__ void staged(const float* x, float* out, int n) {
    __shared__ float tile[2][64];
    auto pipe = cuda::make_pipeline();
    int i = threadIdx.x;
    for (int stage = 0; stage < 2; ++stage) {
        pipe.producer_acquire();
        cuda::memcpy_async(&tile[stage][i], &x[stage * 64 + i], sizeof(float), pipe);
        pipe.producer_commit();
    }
    float sum = 0;
    for (int part = 0; part < n / 64; ++part) {
        pipe.consumer_wait();
        __syncthreads();
        sum += tile[part % 2][63 - i];
        __syncthreads();
        pipe.consumer_release();
        pipe.producer_acquire();
        if (part + 2 < n / 64) {
            cuda::memcpy_async(&tile[part % 2][i], &x[(part + 2) * 64 + i],
                               cuda::aligned_size_t<4>(sizeof(float)), pipe);
        }
        pipe.producer_commit();
    }
    out[i] = sum;
}

// <<<1, 64, 0>>>
__global__ void together(const float* x, float* out, int n) {
    __shared__ float tile[2][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    float sum = 0;
    for (int part = 0, next = 0; part < n / 64; ++part) {
        for (; next < n / 64 && next < part + 2; ++next) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tile[next % 2], x + next * 64, 64 * sizeof(float), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += tile[part % 2][63 - threadIdx.x];
        pipe.consumer_release();
    }
    out[threadIdx.x] = sum;
}

// <<<1, 64, 0>>>
__global__ void divided(const float* x, float* out, int n) {
    __shared__ float tile[2][32];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    const bool produces = threadIdx.x < 32;
    const auto role = produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state, role);
    const int i = threadIdx.x % 32;
    float sum = 0;
    for (int part = 0; part < n / 32; ++part) {
        if (produces) {
            pipe.producer_acquire();
            cuda::memcpy_async(&tile[part % 2][i], &x[part * 32 + i], sizeof(float), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            sum += tile[part % 2][31 - i];
            pipe.consumer_release();
        }
    }
    if (!produces) out[i] = sum;
}
