// Tiny kernels, each with one planted fault, and its correct twin. The faulty line says
// `FAULT: kind`; a twin is the same kernel compiled with its launcher's name ending in _right.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define FULL 0xffffffffu

// Each launcher has one shape: float or int arrays x (input) and out, and n.
#define LAUNCH(name, grid, block, bytes)                                            \
    extern "C" cudaError_t run_##name(const float* x, float* out, int n,            \
                                      cudaStream_t stream) {                        \
        name<<<grid, block, bytes, stream>>>(x, out, n);                            \
        return cudaGetLastError();                                                  \
    }

// ---------------------------------------------------------------- out of bounds

__global__ void no_bound(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];  // FAULT: out_of_bounds
}
LAUNCH(no_bound, (n + 63) / 64, 64, 0)

__global__ void no_bound_right(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];
}
LAUNCH(no_bound_right, (n + 63) / 64, 64, 0)

__global__ void off_by_one(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i % n] = x[i];  // FAULT: out_of_bounds
}
LAUNCH(off_by_one, (n + 64) / 64, 64, 0)

__global__ void off_by_one_right(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i % n] = x[i];
}
LAUNCH(off_by_one_right, (n + 64) / 64, 64, 0)

__global__ void before_begin(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = x[i] + x[i - 1];  // FAULT: out_of_bounds
}
LAUNCH(before_begin, 1, 64, 0)

__global__ void before_begin_right(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = x[i] + (i > 0 ? x[i - 1] : 0.0f);
}
LAUNCH(before_begin_right, 1, 64, 0)

__global__ void shared_overflow(const float* x, float* out, int n) {
    __shared__ float s[64];
    s[threadIdx.x + 1] = x[threadIdx.x];  // FAULT: out_of_bounds
    __syncthreads();
    out[threadIdx.x] = threadIdx.x ? s[threadIdx.x] : 0.0f;
}
LAUNCH(shared_overflow, 1, 64, 0)

__global__ void shared_overflow_right(const float* x, float* out, int n) {
    __shared__ float s[65];
    s[threadIdx.x + 1] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = threadIdx.x ? s[threadIdx.x] : 0.0f;
}
LAUNCH(shared_overflow_right, 1, 64, 0)

__global__ void dynamic_overflow(const float* x, float* out, int n) {
    extern __shared__ float d[];
    d[threadIdx.x] = x[threadIdx.x];  // FAULT: out_of_bounds
    __syncthreads();
    out[threadIdx.x] = d[threadIdx.x];
}
LAUNCH(dynamic_overflow, 1, 64, 32 * sizeof(float))

__global__ void dynamic_overflow_right(const float* x, float* out, int n) {
    extern __shared__ float d[];
    d[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = d[threadIdx.x];
}
LAUNCH(dynamic_overflow_right, 1, 64, 64 * sizeof(float))

__global__ void vector_tail(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < (n + 3) / 4) {
        float4 v = ((const float4*)x)[i];  // FAULT: out_of_bounds
        out[i] = v.x + v.y + v.z + v.w;
    }
}
LAUNCH(vector_tail, 1, 64, 0)

__global__ void vector_tail_right(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < n / 4) {
        float4 v = ((const float4*)x)[i];
        out[i] = v.x + v.y + v.z + v.w;
    }
}
LAUNCH(vector_tail_right, 1, 64, 0)

__global__ void far_away(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = x[(long long)i * 100000000];  // FAULT: out_of_bounds
}
LAUNCH(far_away, 1, 64, 0)

__global__ void far_away_right(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = x[(long long)i * 1];
}
LAUNCH(far_away_right, 1, 64, 0)

__global__ void null_read(const float* x, float* out, const float* missing) {
    out[threadIdx.x] = x[threadIdx.x] + missing[threadIdx.x];  // FAULT: out_of_bounds
}
extern "C" cudaError_t run_null_read(const float* x, float* out, int n, cudaStream_t stream) {
    null_read<<<1, 32, 0, stream>>>(x, out, nullptr);
    return cudaGetLastError();
}
__global__ void null_read_right(const float* x, float* out, const float* missing) {
    out[threadIdx.x] = x[threadIdx.x] + (missing ? missing[threadIdx.x] : 0.0f);
}
extern "C" cudaError_t run_null_read_right(const float* x, float* out, int n,
                                           cudaStream_t stream) {
    null_read_right<<<1, 32, 0, stream>>>(x, out, nullptr);
    return cudaGetLastError();
}

__global__ void host_pointer(const float* scale, const float* x, float* out) {
    out[threadIdx.x] = x[threadIdx.x] * *scale;  // FAULT: out_of_bounds
}
extern "C" cudaError_t run_host_pointer(const float* x, float* out, int n, cudaStream_t stream) {
    float scale = 2.0f;
    host_pointer<<<1, 32, 0, stream>>>(&scale, x, out);
    return cudaGetLastError();
}
__global__ void host_pointer_right(float scale, const float* x, float* out) {
    out[threadIdx.x] = x[threadIdx.x] * scale;
}
extern "C" cudaError_t run_host_pointer_right(const float* x, float* out, int n,
                                              cudaStream_t stream) {
    float scale = 2.0f;
    host_pointer_right<<<1, 32, 0, stream>>>(scale, x, out);
    return cudaGetLastError();
}

__global__ void past_scratch(const float* x, float* out, float* scratch) {
    scratch[threadIdx.x] = x[threadIdx.x];  // FAULT: out_of_bounds
    out[threadIdx.x] = x[threadIdx.x];
}
extern "C" cudaError_t run_past_scratch(const float* x, float* out, int n, cudaStream_t stream) {
    float* scratch;
    cudaError_t error = cudaMalloc(&scratch, 31 * sizeof(float));
    if (error != cudaSuccess) return error;
    past_scratch<<<1, 32, 0, stream>>>(x, out, scratch);
    cudaFree(scratch);
    return cudaGetLastError();
}
__global__ void past_scratch_right(const float* x, float* out, float* scratch) {
    scratch[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = x[threadIdx.x];
}
extern "C" cudaError_t run_past_scratch_right(const float* x, float* out, int n,
                                              cudaStream_t stream) {
    float* scratch;
    cudaError_t error = cudaMalloc(&scratch, 32 * sizeof(float));
    if (error != cudaSuccess) return error;
    past_scratch_right<<<1, 32, 0, stream>>>(x, out, scratch);
    cudaFree(scratch);
    return cudaGetLastError();
}

__global__ void atomic_outside(const float* x, float* out, int n) {
    atomicAdd(&out[threadIdx.x * 8], x[threadIdx.x]);  // FAULT: out_of_bounds
}
LAUNCH(atomic_outside, 1, 64, 0)

__global__ void atomic_outside_right(const float* x, float* out, int n) {
    atomicAdd(&out[threadIdx.x % 8], x[threadIdx.x]);
}
LAUNCH(atomic_outside_right, 1, 64, 0)

__global__ void misaligned(const float* x, float* out, int n) {
    float4 v = *(const float4*)(x + 1 + 4 * threadIdx.x);  // FAULT: misaligned
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
LAUNCH(misaligned, 1, 8, 0)

__global__ void misaligned_right(const float* x, float* out, int n) {
    float4 v = *(const float4*)(x + 4 + 4 * threadIdx.x);
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
LAUNCH(misaligned_right, 1, 8, 0)

__global__ void misaligned_half2(const float* x, float* out, int n) {
    const __half* h = (const __half*)x;
    __half2 v = *(const __half2*)(h + 2 * threadIdx.x + 1);  // FAULT: misaligned
    out[threadIdx.x] = __low2float(v) + __high2float(v);
}
LAUNCH(misaligned_half2, 1, 8, 0)

__global__ void misaligned_half2_right(const float* x, float* out, int n) {
    const __half* h = (const __half*)x;
    __half2 v = *(const __half2*)(h + 2 * threadIdx.x);
    out[threadIdx.x] = __low2float(v) + __high2float(v);
}
LAUNCH(misaligned_half2_right, 1, 8, 0)

// -------------------------------------------------------- races in shared memory

__global__ void no_barrier(const float* x, float* out, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = s[63 - threadIdx.x];  // FAULT: race
}
LAUNCH(no_barrier, 1, 64, 0)

__global__ void no_barrier_right(const float* x, float* out, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}
LAUNCH(no_barrier_right, 1, 64, 0)

__global__ void second_barrier(const float* x, float* out, int n) {
    __shared__ float s[64];
    float sum = 0.0f;
    for (int k = 0; k < 2; ++k) {
        s[threadIdx.x] = x[threadIdx.x] * k;  // FAULT: race
        __syncthreads();
        sum += s[63 - threadIdx.x];
    }
    out[threadIdx.x] = sum;
}
LAUNCH(second_barrier, 1, 64, 0)

__global__ void second_barrier_right(const float* x, float* out, int n) {
    __shared__ float s[64];
    float sum = 0.0f;
    for (int k = 0; k < 2; ++k) {
        s[threadIdx.x] = x[threadIdx.x] * k;
        __syncthreads();
        sum += s[63 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
LAUNCH(second_barrier_right, 1, 64, 0)

__global__ void no_syncwarp(const float* x, float* out, int n) {
    __shared__ float s[32];
    s[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = s[31 - threadIdx.x];  // FAULT: race
}
LAUNCH(no_syncwarp, 1, 32, 0)

__global__ void no_syncwarp_right(const float* x, float* out, int n) {
    __shared__ float s[32];
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = s[31 - threadIdx.x];
}
LAUNCH(no_syncwarp_right, 1, 32, 0)

__global__ void warp_tail(const float* x, float* out, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int half = 32; half > 0; half /= 2) {
            if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];  // FAULT: race
        }
        if (threadIdx.x == 0) out[0] = s[0];
    }
}
LAUNCH(warp_tail, 1, 64, 0)

__global__ void warp_tail_right(const float* x, float* out, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int half = 32; half > 0; half /= 2) {
            if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
            __syncwarp();
        }
        if (threadIdx.x == 0) out[0] = s[0];
    }
}
LAUNCH(warp_tail_right, 1, 64, 0)

__global__ void syncwarp_for_block(const float* x, float* out, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = s[63 - threadIdx.x];  // FAULT: race
}
LAUNCH(syncwarp_for_block, 1, 64, 0)

__global__ void syncwarp_for_block_right(const float* x, float* out, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = s[threadIdx.x ^ 1];
}
LAUNCH(syncwarp_for_block_right, 1, 64, 0)

__global__ void narrow_syncwarp(const float* x, float* out, int n) {
    __shared__ float s[32];
    s[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 16) {
        __syncwarp(0x0000ffffu);
    } else {
        __syncwarp(0xffff0000u);
    }
    out[threadIdx.x] = s[31 - threadIdx.x];  // FAULT: race
}
LAUNCH(narrow_syncwarp, 1, 32, 0)

__global__ void narrow_syncwarp_right(const float* x, float* out, int n) {
    __shared__ float s[32];
    s[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 16) {
        __syncwarp(0x0000ffffu);
    } else {
        __syncwarp(0xffff0000u);
    }
    out[threadIdx.x] = s[threadIdx.x ^ 15];
}
LAUNCH(narrow_syncwarp_right, 1, 32, 0)

__global__ void shared_counter(const float* x, float* out, int n) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (x[threadIdx.x] > 0.0f) count += 1;  // FAULT: race
    __syncthreads();
    if (threadIdx.x == 0) out[0] = (float)count;
}
LAUNCH(shared_counter, 1, 64, 0)

__global__ void shared_counter_right(const float* x, float* out, int n) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (x[threadIdx.x] > 0.0f) atomicAdd(&count, 1);
    __syncthreads();
    if (threadIdx.x == 0) out[0] = (float)count;
}
LAUNCH(shared_counter_right, 1, 64, 0)

__global__ void read_beside_atomic(const float* x, float* out, int n) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, 1);
    if (threadIdx.x == 63) out[0] = (float)count;  // FAULT: race
}
LAUNCH(read_beside_atomic, 1, 64, 0)

__global__ void read_beside_atomic_right(const float* x, float* out, int n) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    if (threadIdx.x == 63) out[0] = (float)count;
}
LAUNCH(read_beside_atomic_right, 1, 64, 0)

__global__ void scan_in_place(const float* x, float* out, int n) {
    __shared__ float s[64];
    int i = threadIdx.x;
    s[i] = x[i];
    __syncthreads();
    for (int step = 1; step < 64; step *= 2) {
        if (i >= step) s[i] += s[i - step];  // FAULT: race
        __syncthreads();
    }
    out[i] = s[i];
}
LAUNCH(scan_in_place, 1, 64, 0)

__global__ void scan_in_place_right(const float* x, float* out, int n) {
    __shared__ float s[64];
    int i = threadIdx.x;
    s[i] = x[i];
    __syncthreads();
    for (int step = 1; step < 64; step *= 2) {
        float other = i >= step ? s[i - step] : 0.0f;
        __syncthreads();
        s[i] += other;
        __syncthreads();
    }
    out[i] = s[i];
}
LAUNCH(scan_in_place_right, 1, 64, 0)

__global__ void half_race(const float* x, float* out, int n) {
    __shared__ __half s[66];
    s[threadIdx.x] = __float2half(x[threadIdx.x]);
    s[threadIdx.x + 1] = __float2half(1.0f);  // FAULT: race
    __syncthreads();
    out[threadIdx.x] = __half2float(s[threadIdx.x]);
}
LAUNCH(half_race, 1, 64, 0)

__global__ void half_race_right(const float* x, float* out, int n) {
    __shared__ __half s[66];  // neighbors share a word, not a byte: no race
    s[threadIdx.x] = __float2half(x[threadIdx.x]);
    __syncthreads();
    out[threadIdx.x] = __half2float(s[threadIdx.x]);
}
LAUNCH(half_race_right, 1, 64, 0)

__global__ void broadcast_slot(const float* x, float* out, int n) {
    __shared__ float total;
    float v = x[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(FULL, v, lanes);
    if (threadIdx.x % 32 == 0) total = v;  // FAULT: race
    __syncthreads();
    out[threadIdx.x] = total;
}
LAUNCH(broadcast_slot, 1, 64, 0)

__global__ void broadcast_slot_right(const float* x, float* out, int n) {
    __shared__ float total[2];
    float v = x[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(FULL, v, lanes);
    if (threadIdx.x % 32 == 0) total[threadIdx.x / 32] = v;
    __syncthreads();
    out[threadIdx.x] = total[0] + total[1];
}
LAUNCH(broadcast_slot_right, 1, 64, 0)

__global__ void dynamic_race(const float* x, float* out, int n) {
    extern __shared__ float d[];
    float* upper = d + 32;
    d[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 32) upper[threadIdx.x] = 0.0f;  // FAULT: race
    __syncthreads();
    out[threadIdx.x] = d[threadIdx.x];
}
LAUNCH(dynamic_race, 1, 64, 64 * sizeof(float))

__global__ void dynamic_race_right(const float* x, float* out, int n) {
    extern __shared__ float d[];
    float* upper = d + 64;
    d[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 32) upper[threadIdx.x] = 0.0f;
    __syncthreads();
    out[threadIdx.x] = d[threadIdx.x];
}
LAUNCH(dynamic_race_right, 1, 64, 96 * sizeof(float))

// -------------------------------------------------------- races in global memory

__global__ void blocks_one_address(const float* x, float* out, int n) {
    if (threadIdx.x == 0) out[0] = x[blockIdx.x];  // FAULT: race
}
LAUNCH(blocks_one_address, 4, 32, 0)

__global__ void blocks_one_address_right(const float* x, float* out, int n) {
    if (threadIdx.x == 0) out[blockIdx.x] = x[blockIdx.x];
}
LAUNCH(blocks_one_address_right, 4, 32, 0)

__global__ void blocks_sum(const float* x, float* out, int n) {
    if (threadIdx.x == 0) out[0] += x[blockIdx.x];  // FAULT: race
}
LAUNCH(blocks_sum, 4, 32, 0)

__global__ void blocks_sum_right(const float* x, float* out, int n) {
    if (threadIdx.x == 0) atomicAdd(&out[0], x[blockIdx.x]);
}
LAUNCH(blocks_sum_right, 4, 32, 0)

__global__ void neighbor_in_place(const float* x, float* out, int n) {
    int i = blockIdx.x * 16 + threadIdx.x;
    if (i + 1 < 64) out[i] = out[i + 1];  // FAULT: race
}
LAUNCH(neighbor_in_place, 4, 16, 0)

__global__ void neighbor_in_place_right(const float* x, float* out, int n) {
    int i = blockIdx.x * 16 + threadIdx.x;
    if (i + 1 < 64) out[i] = x[i + 1];
}
LAUNCH(neighbor_in_place_right, 4, 16, 0)

__global__ void global_no_barrier(const float* x, float* out, int n) {
    out[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 32) out[threadIdx.x + 64] = out[threadIdx.x + 32];  // FAULT: race
}
LAUNCH(global_no_barrier, 1, 64, 0)

__global__ void global_no_barrier_right(const float* x, float* out, int n) {
    out[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) out[threadIdx.x + 64] = out[threadIdx.x + 32];
}
LAUNCH(global_no_barrier_right, 1, 64, 0)

__device__ unsigned int arrived, arrived_right;

// The last thread block to arrive adds up what all have written.
__global__ void no_fence(const float* x, float* out, int n) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        out[1 + blockIdx.x] = x[blockIdx.x];
        last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0.0f;
        for (int b = 0; b < 4; ++b) sum += out[1 + b];  // FAULT: race
        out[0] = sum;
    }
}
LAUNCH(no_fence, 4, 32, 0)

__global__ void no_fence_right(const float* x, float* out, int n) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        out[1 + blockIdx.x] = x[blockIdx.x];
        __threadfence();
        last = atomicInc(&arrived_right, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0.0f;
        for (int b = 0; b < 4; ++b) sum += out[1 + b];
        out[0] = sum;
    }
}
LAUNCH(no_fence_right, 4, 32, 0)

__device__ int hits, hits_right;

__global__ void device_variable(const float* x, float* out, int n) {
    if (x[threadIdx.x] > 0.0f) hits = hits + 1;  // FAULT: race
    out[threadIdx.x] = x[threadIdx.x];
}
LAUNCH(device_variable, 1, 64, 0)

__global__ void device_variable_right(const float* x, float* out, int n) {
    if (x[threadIdx.x] > 0.0f) atomicAdd(&hits_right, 1);
    out[threadIdx.x] = x[threadIdx.x];
}
LAUNCH(device_variable_right, 1, 64, 0)

// ------------------------------------------------------ uninitialized shared memory

__global__ void unwritten(const float* x, float* out, int n) {
    __shared__ float s[64];
    if (threadIdx.x < 63) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];  // FAULT: uninitialized
}
LAUNCH(unwritten, 1, 64, 0)

__global__ void unwritten_right(const float* x, float* out, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = threadIdx.x < 63 ? x[threadIdx.x] : 0.0f;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
LAUNCH(unwritten_right, 1, 64, 0)

__global__ void unwritten_counter(const float* x, float* out, int n) {
    __shared__ int count;
    atomicAdd(&count, 1);  // FAULT: uninitialized
    __syncthreads();
    out[threadIdx.x] = (float)count;
}
LAUNCH(unwritten_counter, 1, 64, 0)

__global__ void unwritten_counter_right(const float* x, float* out, int n) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    out[threadIdx.x] = (float)count;
}
LAUNCH(unwritten_counter_right, 1, 64, 0)

__global__ void unwritten_dynamic(const float* x, float* out, int n) {
    extern __shared__ float d[];
    if (blockIdx.x == 0) d[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = d[threadIdx.x];  // FAULT: uninitialized
}
LAUNCH(unwritten_dynamic, 2, 32, 32 * sizeof(float))

__global__ void unwritten_dynamic_right(const float* x, float* out, int n) {
    extern __shared__ float d[];
    d[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = d[threadIdx.x];
}
LAUNCH(unwritten_dynamic_right, 2, 32, 32 * sizeof(float))

__global__ void partial_warps(const float* x, float* out, int n) {
    __shared__ float part[32];
    float v = x[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(FULL, v, lanes);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        float sum = part[threadIdx.x];  // FAULT: uninitialized
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(FULL, sum, lanes);
        if (threadIdx.x == 0) out[0] = sum;
    }
}
LAUNCH(partial_warps, 1, 96, 0)

__global__ void partial_warps_right(const float* x, float* out, int n) {
    __shared__ float part[32];
    float v = x[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(FULL, v, lanes);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        float sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(FULL, sum, lanes);
        if (threadIdx.x == 0) out[0] = sum;
    }
}
LAUNCH(partial_warps_right, 1, 96, 0)

// ------------------------------------------------------------ barriers and deadlocks

__global__ void early_return(const float* x, float* out, int n) {
    __shared__ float s[64];
    if (threadIdx.x >= 40) return;
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();  // FAULT: divergent_barrier
    out[threadIdx.x] = s[39 - threadIdx.x];
}
LAUNCH(early_return, 1, 64, 0)

__global__ void early_return_right(const float* x, float* out, int n) {
    __shared__ float s[64];
    if (threadIdx.x < 40) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 40) out[threadIdx.x] = s[39 - threadIdx.x];
}
LAUNCH(early_return_right, 1, 64, 0)

__global__ void barrier_in_branches(const float* x, float* out, int n) {
    __shared__ float s[64];
    if (threadIdx.x < 32) {
        s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
    } else {
        s[threadIdx.x] = -x[threadIdx.x];
        __syncthreads();  // FAULT: divergent_barrier
    }
    out[threadIdx.x] = s[63 - threadIdx.x];
}
LAUNCH(barrier_in_branches, 1, 64, 0)

__global__ void barrier_in_branches_right(const float* x, float* out, int n) {
    __shared__ float s[64];
    if (threadIdx.x < 32) {
        s[threadIdx.x] = x[threadIdx.x];
    } else {
        s[threadIdx.x] = -x[threadIdx.x];
    }
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}
LAUNCH(barrier_in_branches_right, 1, 64, 0)

__global__ void barrier_in_loop(const float* x, float* out, int n) {
    float sum = 0.0f;
    int turns = threadIdx.x < 32 ? 2 : 3;
    for (int k = 0; k < turns; ++k) {
        sum += x[threadIdx.x];
        __syncthreads();  // FAULT: divergent_barrier
    }
    out[threadIdx.x] = sum;
}
LAUNCH(barrier_in_loop, 1, 64, 0)

__global__ void barrier_in_loop_right(const float* x, float* out, int n) {
    float sum = 0.0f;
    int turns = threadIdx.x < 32 ? 2 : 3;
    for (int k = 0; k < 3; ++k) {
        if (k < turns) sum += x[threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
LAUNCH(barrier_in_loop_right, 1, 64, 0)

__global__ void warp_against_block(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) {
        v += __shfl_xor_sync(FULL, v, 1);  // FAULT: deadlock
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = v;
}
LAUNCH(warp_against_block, 1, 32, 0)

__global__ void warp_against_block_right(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) v += __shfl_xor_sync(0x0000ffffu, v, 1);
    __syncthreads();
    out[threadIdx.x] = v;
}
LAUNCH(warp_against_block_right, 1, 32, 0)

__global__ void masks_disagree(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    unsigned mask = threadIdx.x < 16 ? FULL : 0xffff0000u;
    v += __shfl_xor_sync(mask, v, 1);  // FAULT: deadlock
    __syncthreads();
    out[threadIdx.x] = v;
}
LAUNCH(masks_disagree, 1, 32, 0)

__global__ void masks_disagree_right(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
    v += __shfl_xor_sync(mask, v, 1);
    __syncthreads();
    out[threadIdx.x] = v;
}
LAUNCH(masks_disagree_right, 1, 32, 0)

// ------------------------------------------------------------------------- warps

__global__ void returned_lane(const float* x, float* out, int n) {
    if (threadIdx.x >= 24) return;
    float v = x[threadIdx.x];
    v += __shfl_down_sync(FULL, v, 8);  // FAULT: inactive_lane
    out[threadIdx.x] = v;
}
LAUNCH(returned_lane, 1, 32, 0)

__global__ void returned_lane_right(const float* x, float* out, int n) {
    float v = threadIdx.x < 24 ? x[threadIdx.x] : 0.0f;
    v += __shfl_down_sync(FULL, v, 8);
    if (threadIdx.x < 24) out[threadIdx.x] = v;
}
LAUNCH(returned_lane_right, 1, 32, 0)

__global__ void lane_outside_mask(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) {
        for (int step = 16; step > 0; step /= 2)
            v += __shfl_down_sync(0x0000ffffu, v, step);  // FAULT: inactive_lane
    }
    out[threadIdx.x] = v;
}
LAUNCH(lane_outside_mask, 1, 32, 0)

__global__ void lane_outside_mask_right(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) {
        for (int step = 8; step > 0; step /= 2)
            v += __shfl_down_sync(0x0000ffffu, v, step, 16);
    }
    out[threadIdx.x] = v;
}
LAUNCH(lane_outside_mask_right, 1, 32, 0)

__global__ void last_partial_warp(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2)
        v += __shfl_xor_sync(FULL, v, lanes);  // FAULT: inactive_lane
    if (threadIdx.x == 0) out[0] = v;
}
LAUNCH(last_partial_warp, 1, 40, 0)

__global__ void last_partial_warp_right(const float* x, float* out, int n) {
    float v = threadIdx.x < 40 ? x[threadIdx.x] : 0.0f;
    for (int lanes = 16; lanes > 0; lanes /= 2)
        v += __shfl_xor_sync(FULL, v, lanes);
    if (threadIdx.x == 0) out[0] = v;
}
LAUNCH(last_partial_warp_right, 1, 64, 0)

__global__ void not_in_own_mask(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    v += __shfl_xor_sync(0x0000ffffu, v, 1, 16);  // FAULT: wrong_mask
    out[threadIdx.x] = v;
}
LAUNCH(not_in_own_mask, 1, 32, 0)

__global__ void not_in_own_mask_right(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    v += __shfl_xor_sync(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u, v, 1, 16);
    out[threadIdx.x] = v;
}
LAUNCH(not_in_own_mask_right, 1, 32, 0)

__global__ void shuffles_in_branches(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    if (threadIdx.x % 2) {
        v += __shfl_xor_sync(FULL, v, 1);
    } else {
        v -= __shfl_xor_sync(FULL, v, 1);  // FAULT: divergent_collective
    }
    out[threadIdx.x] = v;
}
LAUNCH(shuffles_in_branches, 1, 32, 0)

__global__ void shuffles_in_branches_right(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    float other = __shfl_xor_sync(FULL, v, 1);
    out[threadIdx.x] = threadIdx.x % 2 ? v + other : v - other;
}
LAUNCH(shuffles_in_branches_right, 1, 32, 0)

__global__ void tile_race(const float* x, float* out, int n) {
    namespace cg = cooperative_groups;
    __shared__ float s[64];
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    s[threadIdx.x] = x[threadIdx.x];
    tile.sync();
    out[threadIdx.x] = s[threadIdx.x ^ 16];  // FAULT: race
}
LAUNCH(tile_race, 1, 64, 0)

__global__ void tile_race_right(const float* x, float* out, int n) {
    namespace cg = cooperative_groups;
    __shared__ float s[64];
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    s[threadIdx.x] = x[threadIdx.x];
    tile.sync();
    out[threadIdx.x] = s[threadIdx.x ^ 8];
}
LAUNCH(tile_race_right, 1, 64, 0)

// --------------------------------------------------- structs that functions take and return

struct Pair {
    float value, weight;
};

__device__ float product(Pair p) { return p.value * p.weight; }

__device__ Pair combine(Pair a, Pair b) {
    return {a.value * a.weight + b.value * b.weight, a.weight + b.weight};
}

__global__ void struct_by_value(const float* x, float* out, int n) {
    const Pair* pairs = (const Pair*)x;
    out[threadIdx.x] = product(pairs[threadIdx.x]);  // FAULT: out_of_bounds
}
LAUNCH(struct_by_value, 1, 64, 0)

__global__ void struct_by_value_right(const float* x, float* out, int n) {
    const Pair* pairs = (const Pair*)x;
    if (threadIdx.x < n / 2) out[threadIdx.x] = product(pairs[threadIdx.x]);
}
LAUNCH(struct_by_value_right, 1, 64, 0)

__global__ void struct_returned(const float* x, float* out, int n) {
    __shared__ Pair s[65];
    s[threadIdx.x] = {x[threadIdx.x], 1.0f};
    if (threadIdx.x == 0) s[64] = {0.0f, 0.0f};
    __syncthreads();
    s[threadIdx.x] = combine(s[threadIdx.x], s[threadIdx.x + 1]);  // FAULT: race
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x].value;
}
LAUNCH(struct_returned, 1, 64, 0)

__global__ void struct_returned_right(const float* x, float* out, int n) {
    __shared__ Pair s[65];
    s[threadIdx.x] = {x[threadIdx.x], 1.0f};
    if (threadIdx.x == 0) s[64] = {0.0f, 0.0f};
    __syncthreads();
    Pair sum = combine(s[threadIdx.x], s[threadIdx.x + 1]);
    __syncthreads();
    s[threadIdx.x] = sum;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x].value;
}
LAUNCH(struct_returned_right, 1, 64, 0)
