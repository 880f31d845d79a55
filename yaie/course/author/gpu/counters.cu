// Kernels whose cost the hardware's rules give: what a request of a warp asks of memory.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

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

extern "C" {
cudaError_t run_transpose_naive(const float* in, float* out, int n, cudaStream_t stream) {
    transpose_naive<<<dim3(n / 32, n / 32), dim3(32, 32), 0, stream>>>(in, out, n);
    return cudaGetLastError();
}
cudaError_t run_transpose_32(const float* in, float* out, int n, cudaStream_t stream) {
    transpose_tile<32><<<dim3(n / 32, n / 32), dim3(32, 32), 0, stream>>>(in, out, n);
    return cudaGetLastError();
}
cudaError_t run_transpose_33(const float* in, float* out, int n, cudaStream_t stream) {
    transpose_tile<33><<<dim3(n / 32, n / 32), dim3(32, 32), 0, stream>>>(in, out, n);
    return cudaGetLastError();
}
cudaError_t run_strided(const float* in, float* out, int stride, cudaStream_t stream) {
    strided<<<1, 32, 0, stream>>>(in, out, stride);
    return cudaGetLastError();
}
cudaError_t run_shifted(const float* in, float* out, int shift, cudaStream_t stream) {
    shifted<<<1, 32, 0, stream>>>((const float4*)(in + shift), (float4*)out, 0);
    return cudaGetLastError();
}
cudaError_t run_broadcast(const float* in, float* out, int n, cudaStream_t stream) {
    broadcast<<<1, 32, 0, stream>>>(in, out, n);
    return cudaGetLastError();
}
cudaError_t run_shared_stride(const float* in, float* out, int stride, cudaStream_t stream) {
    shared_stride<<<1, 32, 0, stream>>>(in, out, stride);
    return cudaGetLastError();
}
cudaError_t run_shared_vectors(const float* in, float* out, int n, cudaStream_t stream) {
    shared_vectors<<<1, 32, 0, stream>>>(in, out, n);
    return cudaGetLastError();
}
cudaError_t run_doubles_apart(const float* in, float* out, int number, cudaStream_t stream) {
    shared_load<<<1, 32, 0, stream>>>((const double*)in, out, number, 5, ~0u);
    return cudaGetLastError();
}
cudaError_t run_doubles_meet(const float* in, float* out, int number, cudaStream_t stream) {
    shared_load<<<1, 32, 0, stream>>>((const double*)in, out, 1, number, ~0u);
    return cudaGetLastError();
}
cudaError_t run_doubles_lanes(const float* in, float* out, int number, cudaStream_t stream) {
    shared_load<<<1, 32, 0, stream>>>((const double*)in, out, 1, 5, (unsigned)number);
    return cudaGetLastError();
}
cudaError_t run_doubles_alone(const float* in, float* out, int bit, cudaStream_t stream) {
    const unsigned first[] = {0x55555555, 0x33333333, 0x0f0f0f0f, 0x00ff00ff, 0x0000ffff};
    shared_load<<<1, 32, 0, stream>>>((const double*)in, out, 1, bit, first[bit]);
    return cudaGetLastError();
}
cudaError_t run_doubles_stored(const float* in, float* out, int bit, cudaStream_t stream) {
    shared_store<<<1, 32, 0, stream>>>((const double*)in, out, bit);
    return cudaGetLastError();
}
cudaError_t run_float4_apart(const float* in, float* out, int number, cudaStream_t stream) {
    shared_load<<<1, 32, 0, stream>>>((const float4*)in, out, number, 5, ~0u);
    return cudaGetLastError();
}
cudaError_t run_float4_meet(const float* in, float* out, int number, cudaStream_t stream) {
    shared_load<<<1, 32, 0, stream>>>((const float4*)in, out, 1, number, ~0u);
    return cudaGetLastError();
}
cudaError_t run_float4_lanes(const float* in, float* out, int number, cudaStream_t stream) {
    shared_load<<<1, 32, 0, stream>>>((const float4*)in, out, 1, 5, (unsigned)number);
    return cudaGetLastError();
}
cudaError_t run_float4_alone(const float* in, float* out, int bit, cudaStream_t stream) {
    const unsigned first[] = {0x55555555, 0x33333333, 0x0f0f0f0f, 0x00ff00ff, 0x0000ffff};
    shared_load<<<1, 32, 0, stream>>>((const float4*)in, out, 1, bit, first[bit]);
    return cudaGetLastError();
}
cudaError_t run_float4_stored(const float* in, float* out, int bit, cudaStream_t stream) {
    shared_store<<<1, 32, 0, stream>>>((const float4*)in, out, bit);
    return cudaGetLastError();
}
cudaError_t run_halves(const float* in, float* out, int n, cudaStream_t stream) {
    halves<<<1, 32, 0, stream>>>((const __half*)in, (__half*)out);
    return cudaGetLastError();
}
cudaError_t run_half_pairs(const float* in, float* out, int n, cudaStream_t stream) {
    half_pairs<<<1, 32, 0, stream>>>((const __half2*)in, (__half2*)out);
    return cudaGetLastError();
}
cudaError_t run_branches(const float* in, float* out, int n, cudaStream_t stream) {
    branches<<<1, 32, 0, stream>>>(in, out, n);
    return cudaGetLastError();
}
}
