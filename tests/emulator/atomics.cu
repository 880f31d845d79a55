// libcu++'s atomics and barriers.
#include <cuda/atomic>

using Counter = cuda::atomic_ref<int, cuda::thread_scope_device>;

// <<<4, 64, 0>>>
__global__ void operations(const int* x, int* out, unsigned long long* bits) {
    __shared__ cuda::atomic<int, cuda::thread_scope_block> local;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) local = 5;
    __syncthreads();
    local.fetch_add(x[i], cuda::memory_order_relaxed);
    ++local;
    __syncthreads();
    if (threadIdx.x == 0) out[6 + blockIdx.x] = local.load();
    Counter sum(out[0]), least(out[1]), most(out[2]), product(out[3]);
    sum += x[i];
    least.fetch_min(x[i]);
    most.fetch_max(x[i]);
    int old = product.load(cuda::std::memory_order_relaxed);
    while (!product.compare_exchange_weak(old, old * (x[i] == 1 ? 2 : 1), cuda::memory_order_acq_rel)) {
    }
    if (cuda::atomic_ref<int>(out[4]).exchange(i + 1) == 0) out[5] = 1;
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_system> mask(bits[0]);
    mask.fetch_or(1ull << (i % 64));
    cuda::atomic_ref<unsigned long long>(bits[1]).fetch_xor(1ull << (i % 64));
}

// The last thread block adds up what all have written.
// <<<6, 32, 0>>>
__global__ void last_adds(const int* x, int* parts, unsigned* done, int* total) {
    int sum = __reduce_add_sync(~0u, x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x) return;
    parts[blockIdx.x] = sum;
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> finished(*done);
    if (finished.fetch_add(1, cuda::memory_order_acq_rel) + 1 < gridDim.x) return;
    *total = 0;
    for (int i = 0; i < gridDim.x; ++i) *total += parts[i];
}
