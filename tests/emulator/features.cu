// A kernel for each part of CUDA C++ that the emulator has to get right, with the configuration of its
// launch above it: `emulated.with_launchers` writes the launchers. Compiles with nvcc.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <assert.h>
#include <stdio.h>

namespace cg = cooperative_groups;

__constant__ float weights[4];

// Every thread of a 3-D grid writes its own place and the extents.
// <<<dim3(3, 2, 2), dim3(4, 3, 2), 0>>>
__global__ void places(int* out) {
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int i = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
    out[i] = block * 1000 + thread;
}

// Sums of thread blocks, by a tree in dynamic shared memory.
// <<<(n + 255) / 256, 256, 256 * sizeof(float)>>>
__global__ void __launch_bounds__(256) tree_sum(const float* x, float* out, int n) {
    extern __shared__ __align__(16) float part[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

// A transposed tile in static shared memory, of any type.
template <typename T, int Tile>
__global__ void transpose(const T* in, T* out, int rows, int columns) {
    __shared__ T tile[Tile][Tile + 1];
    int column = blockIdx.x * Tile + threadIdx.x, row = blockIdx.y * Tile + threadIdx.y;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = in[row * columns + column];
    __syncthreads();
    column = blockIdx.y * Tile + threadIdx.x;
    row = blockIdx.x * Tile + threadIdx.y;
    if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}

// What each lane gets from each warp-wide operation: [operation][lane].
// <<<1, 32, 0>>>
__global__ void warp_operations(int* out) {
    const unsigned all = 0xffffffffu;
    int lane = threadIdx.x, k = 0;
    out[32 * k++ + lane] = __shfl_sync(all, lane * 10, 5);
    out[32 * k++ + lane] = __shfl_sync(all, lane, 1, 8);
    out[32 * k++ + lane] = __shfl_up_sync(all, lane, 3);
    out[32 * k++ + lane] = __shfl_down_sync(all, lane, 3);
    out[32 * k++ + lane] = __shfl_down_sync(all, lane, 3, 8);
    out[32 * k++ + lane] = __shfl_xor_sync(all, lane, 5);
    out[32 * k++ + lane] = (int)__shfl_xor_sync(all, (double)lane * 0.5, 2);
    out[32 * k++ + lane] = __any_sync(all, lane == 7);
    out[32 * k++ + lane] = __all_sync(all, lane < 31);
    out[32 * k++ + lane] = (int)__ballot_sync(all, lane % 3 == 0);
    out[32 * k++ + lane] = __reduce_add_sync(all, lane);
    out[32 * k++ + lane] = __reduce_min_sync(all, 5 - lane);
    out[32 * k++ + lane] = __reduce_max_sync(all, 5 - lane);
    out[32 * k++ + lane] = (int)__reduce_xor_sync(all, (unsigned)lane * 3);
    out[32 * k++ + lane] = (int)__match_any_sync(all, lane / 8);
    if (lane < 16) {
        out[32 * k + lane] = __reduce_add_sync(0x0000ffffu, lane);
    } else {
        out[32 * k + lane] = __reduce_add_sync(0xffff0000u, lane);
    }
    ++k;
    __syncwarp();
    int same;
    out[32 * k++ + lane] = (int)__match_all_sync(all, 7, &same) + same;
}

// <<<1, 100, 0>>>
__global__ void barrier_votes(int* out) {
    int t = threadIdx.x;
    int count = __syncthreads_count(t % 3 == 0);
    int both = __syncthreads_and(t < 1000);
    int either = __syncthreads_or(t == 1000);
    out[t] = count * 100 + both * 10 + either;
}

__global__ void atomics(int* ints, float* sum, unsigned int* wrapped) {
    atomicAdd(&ints[0], 1);
    atomicMax(&ints[1], (int)(blockIdx.x * blockDim.x + threadIdx.x));
    atomicMin(&ints[2], -(int)threadIdx.x);
    atomicOr(&ints[3], 1 << (threadIdx.x % 32));
    atomicAdd(sum, 0.5f);
    atomicInc(wrapped, 6);
    int seen = ints[4], expected;
    do {
        expected = seen;
        seen = atomicCAS(&ints[4], expected, expected + 2);
    } while (seen != expected);
}

__global__ void vectors(const float4* in, float4* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = in[i];
    out[i] = make_float4(v.w, v.z + weights[1], v.y, v.x);
}

// Fused add and ReLU, two halves at a time.
// <<<(n + 63) / 64, 64, 0>>>
__global__ void half_add_relu(const __half2* a, const __half2* b, __half2* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = __hmax2(__hadd2(a[i], b[i]), __float2half2_rn(0.0f));
}

// <<<(n + 63) / 64, 64, 0>>>
__global__ void half_fma(const __half* a, const __half* b, const __half* c, __half* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = __hfma(a[i], b[i], c[i]);
}

// <<<(n + 63) / 64, 64, 0>>>
__global__ void brain_scale(const __nv_bfloat16* in, __nv_bfloat16* out, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = __float2bfloat16(__bfloat162float(in[i]) * scale);
}

// <<<1, 64, 0>>>
__global__ void tiles(const float* in, float* out) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    float sum = cg::reduce(tile, in[block.thread_rank()], cg::plus<float>());
    block.sync();
    if (tile.thread_rank() == 0) out[tile.meta_group_rank()] = sum;
}

// <<<1, n, 0>>>
__global__ void mathematics(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    out[i] = rsqrtf(x[i]) + __expf(-x[i]) + fmaxf(x[i], 2.0f) + (float)__popc(i) +
             __int_as_float(__float_as_int(x[i])) + (float)max(i, 3) + __fdividef(x[i], 2.0f);
}

// <<<1, 64, 0>>>
__global__ void says() {
    if (threadIdx.x < 2) printf("thread %d of %d\n", (int)threadIdx.x, (int)blockDim.x);
}

// <<<2, 2, 0>>>
__global__ void asserts(int n) { assert(n > 3); }
// <<<1, 1, 0>>>
__global__ void hangs(volatile int* flag) { while (*flag == 0) {} }
// <<<1, 64, 0>>>
__global__ void hangs_at_barriers(volatile int* flag) {
    while (*flag == 0) {
        __syncthreads();
    }
}
// <<<1, 1, 0>>>
__global__ void crashes(int* p) { p[1ll << 40] = 1; }
// <<<1, 1, 0>>>
__global__ void divides(int* p) { p[0] = 7 / p[1]; }

extern "C" {

cudaError_t run_transpose(const float* in, float* out, int rows, int columns, cudaStream_t stream) {
    dim3 grid((columns + 31) / 32, (rows + 31) / 32);
    transpose<float, 32><<<grid, dim3(32, 32), 0, stream>>>(in, out, rows, columns);
    return cudaGetLastError();
}
cudaError_t run_transpose_half(const __half* in, __half* out, int rows, int columns,
                               cudaStream_t stream) {
    dim3 grid((columns + 15) / 16, (rows + 15) / 16);
    transpose<__half, 16><<<grid, dim3(16, 16), 0, stream>>>(in, out, rows, columns);
    return cudaGetLastError();
}
cudaError_t run_atomics(int* ints, float* sum, int* wrapped, cudaStream_t stream) {
    cudaMemsetAsync(ints, 0, 5 * sizeof(int), stream);
    atomics<<<37, 96, 0, stream>>>(ints, sum, (unsigned int*)wrapped);
    return cudaGetLastError();
}
cudaError_t run_vectors(const float* in, float* out, int n, cudaStream_t stream) {
    const float host[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    cudaError_t error = cudaMemcpyToSymbolAsync(weights, host, sizeof(host), 0,
                                                cudaMemcpyHostToDevice, stream);
    if (error != cudaSuccess) return error;
    vectors<<<(n + 127) / 128, 128, 0, stream>>>((const float4*)in, (float4*)out, n);
    return cudaGetLastError();
}
}
