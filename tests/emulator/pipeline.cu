// libcu++'s pipeline of one thread.
#include <cuda/pipeline>

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
