// What depends on the machine: switching stacks, waiting, signals.
#include <cuda_runtime.h>

__global__ void sum(const float* x, float* out, int n) {
    __shared__ float partial[8];
    float mine = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) mine += x[i];
    for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_xor_sync(~0u, mine, lanes);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (int i = 0; i < 8; ++i) total += partial[i];
        out[blockIdx.x] = total;
    }
}
__global__ void nowhere(float* out) {
    if (threadIdx.x == 3) *(volatile float*)8 = 1.0f;
    __syncthreads();
    out[0] = 1.0f;
}
__device__ __noinline__ float below(volatile float* out, int depth) {
    volatile char room[4096];
    room[depth % 4096] = (char)depth;
    return depth < 0 ? room[1] : below(out, depth + 1) + room[depth % 4096] + *out;
}
__global__ void deep(float* out) { out[1] = below(out, 1); }
__global__ void endless(float* out) {
    for (unsigned i = 3; i >= 0; --i) *(volatile float*)out = i;
}
__global__ void divide(float* out) {
    const int zero = (int)out[3];
    out[0] = (float)(7 / zero);
}
__global__ void trap(float* out) {
    if (threadIdx.x == 5) __trap();
    out[0] = 2.0f;
}

extern "C" cudaError_t run_sum(const float* x, float* out, int n, cudaStream_t stream) {
    sum<<<2, 256, 0, stream>>>(x, out, n);
    return cudaGetLastError();
}
#define ONE(name)                                                           \
    extern "C" cudaError_t run_##name(float* out, cudaStream_t stream) {    \
        name<<<1, 32, 0, stream>>>(out);                                    \
        return cudaGetLastError();                                          \
    }
ONE(nowhere)
ONE(deep)
ONE(endless)
ONE(trap)
ONE(divide)
