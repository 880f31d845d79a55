// Kernels whose cost the hardware's rules give: what a request of a warp asks of memory.
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
cudaError_t run_branches(const float* in, float* out, int n, cudaStream_t stream) {
    branches<<<1, 32, 0, stream>>>(in, out, n);
    return cudaGetLastError();
}
}
