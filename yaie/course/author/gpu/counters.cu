// Kernels whose cost the hardware's rules give: what a request of a warp asks of memory.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define LAUNCH(name, ...)                                                                       \
    extern "C" cudaError_t run_##name(const float* in, float* out, int n, cudaStream_t stream) { \
        __VA_ARGS__;                                                                            \
        return cudaGetLastError();                                                              \
    }

__global__ void transpose_naive(const float* in, float* out, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    out[x * n + y] = in[y * n + x];
}

template <int Width>
__global__ void transpose_tile(const float* in, float* out, int n) {
    __shared__ float tile[32][Width];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void strided(const float* in, float* out, int stride) {
    out[threadIdx.x] = in[threadIdx.x * stride];
}

__global__ void shifted(const float4* in, float4* out, int) {
    out[threadIdx.x] = in[threadIdx.x];
}

__global__ void broadcast(const float* in, float* out, int) {
    out[threadIdx.x] = in[0];
}

__global__ void shared_stride(const float* in, float* out, int stride) {
    __shared__ float s[1024];
    for (int i = threadIdx.x; i < 1024; i += 32) s[i] = in[i];
    __syncwarp();
    out[threadIdx.x] = s[threadIdx.x * stride];
}

__global__ void shared_vectors(const float* in, float* out, int) {
    __shared__ float4 s[32];
    __shared__ double d[32];
    s[threadIdx.x] = make_float4(in[threadIdx.x], 0.0f, 0.0f, 0.0f);
    d[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = s[31 - threadIdx.x].x + (float)d[31 - threadIdx.x];
}

__device__ float sum(double v) { return (float)v; }
__device__ float sum(float4 v) { return v.x + v.y + v.z + v.w; }

// Lanes whose numbers differ in one bit only meet at one element; the elements are a stride apart.
__device__ int without(int lane, int bit) {
    return (lane & ((1 << bit) - 1)) | (lane >> (bit + 1) << bit);
}

template <class T>
__global__ void shared_load(const T* in, float* out, int stride, int bit, unsigned lanes) {
    __shared__ T s[128];
    for (int i = threadIdx.x; i < 128; i += 32) s[i] = in[i];
    __syncwarp();
    if (lanes >> threadIdx.x & 1) out[threadIdx.x] = sum(s[without(threadIdx.x, bit) * stride]);
}

template <class T>
__global__ void shared_store(const T* in, float* out, int bit) {
    __shared__ T s[32];
    s[without(threadIdx.x, bit)] = in[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = sum(s[without(threadIdx.x, bit)]);
}

__global__ void halves(const __half* in, __half* out) {
    out[threadIdx.x] = in[threadIdx.x];
}

__global__ void half_pairs(const __half2* in, __half2* out) {
    out[threadIdx.x] = in[threadIdx.x];
}

__global__ void branches(const float* in, float* out, int n) {
    int i = threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < 4; ++k) {
        sum += in[k * 32 + i];
        if (i % 2) sum += in[512 + k * 32 + i];
    }
    out[i] = sum;
}

dim3 tiles(int n) { return dim3(n / 32, n / 32); }

// The lanes whose numbers have this bit 0: one lane of each pair that meets at an element.
unsigned first_lanes(int bit) {
    const unsigned lanes[] = {0x55555555, 0x33333333, 0x0f0f0f0f, 0x00ff00ff, 0x0000ffff};
    return lanes[bit];
}

LAUNCH(transpose_naive, transpose_naive<<<tiles(n), dim3(32, 32), 0, stream>>>(in, out, n))
LAUNCH(transpose_32, transpose_tile<32><<<tiles(n), dim3(32, 32), 0, stream>>>(in, out, n))
LAUNCH(transpose_33, transpose_tile<33><<<tiles(n), dim3(32, 32), 0, stream>>>(in, out, n))
LAUNCH(strided, strided<<<1, 32, 0, stream>>>(in, out, n))
LAUNCH(shifted, shifted<<<1, 32, 0, stream>>>((const float4*)(in + n), (float4*)out, 0))
LAUNCH(broadcast, broadcast<<<1, 32, 0, stream>>>(in, out, n))
LAUNCH(shared_stride, shared_stride<<<1, 32, 0, stream>>>(in, out, n))
LAUNCH(shared_vectors, shared_vectors<<<1, 32, 0, stream>>>(in, out, n))
LAUNCH(halves, halves<<<1, 32, 0, stream>>>((const __half*)in, (__half*)out))
LAUNCH(half_pairs, half_pairs<<<1, 32, 0, stream>>>((const __half2*)in, (__half2*)out))
LAUNCH(branches, branches<<<1, 32, 0, stream>>>(in, out, n))

LAUNCH(doubles_apart, shared_load<<<1, 32, 0, stream>>>((const double*)in, out, n, 5, ~0u))
LAUNCH(doubles_meet, shared_load<<<1, 32, 0, stream>>>((const double*)in, out, 1, n, ~0u))
LAUNCH(doubles_lanes, shared_load<<<1, 32, 0, stream>>>((const double*)in, out, 1, 5, (unsigned)n))
LAUNCH(doubles_alone,
       shared_load<<<1, 32, 0, stream>>>((const double*)in, out, 1, n, first_lanes(n)))
LAUNCH(doubles_stored, shared_store<<<1, 32, 0, stream>>>((const double*)in, out, n))

LAUNCH(float4_apart, shared_load<<<1, 32, 0, stream>>>((const float4*)in, out, n, 5, ~0u))
LAUNCH(float4_meet, shared_load<<<1, 32, 0, stream>>>((const float4*)in, out, 1, n, ~0u))
LAUNCH(float4_lanes, shared_load<<<1, 32, 0, stream>>>((const float4*)in, out, 1, 5, (unsigned)n))
LAUNCH(float4_alone,
       shared_load<<<1, 32, 0, stream>>>((const float4*)in, out, 1, n, first_lanes(n)))
LAUNCH(float4_stored, shared_store<<<1, 32, 0, stream>>>((const float4*)in, out, n))
