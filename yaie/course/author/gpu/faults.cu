// Tiny kernels, each with one planted fault. The faulty line says `FAULT: kind`. With RIGHT the same
// kernel is correct: its twin, whose launcher's name ends in _right.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define FULL 0xffffffffu

// The launchers of a kernel and of its twin: the arrays x (input) and out have n elements each.
#define LAUNCH(name, ...)                                                                         \
    extern "C" cudaError_t run_##name(const float* x, float* out, int n, cudaStream_t stream) {   \
        constexpr bool RIGHT = false;                                                             \
        __VA_ARGS__;                                                                              \
        return cudaGetLastError();                                                                \
    }                                                                                             \
    extern "C" cudaError_t run_##name##_right(const float* x, float* out, int n,                  \
                                              cudaStream_t stream) {                              \
        constexpr bool RIGHT = true;                                                              \
        __VA_ARGS__;                                                                              \
        return cudaGetLastError();                                                                \
    }

// ---------------------------------------------------------------- out of bounds

template <bool RIGHT> __global__ void no_bound(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (!RIGHT || i < n) out[i] = x[i];  // FAULT: out_of_bounds
}
LAUNCH(no_bound, no_bound<RIGHT><<<(n + 63) / 64, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void off_by_one(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (RIGHT ? i < n : i <= n) out[i % n] = x[i];  // FAULT: out_of_bounds
}
LAUNCH(off_by_one, off_by_one<RIGHT><<<(n + 64) / 64, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void before_begin(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = x[i] + (RIGHT && i == 0 ? 0.0f : x[i - 1]);  // FAULT: out_of_bounds
}
LAUNCH(before_begin, before_begin<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void shared_overflow(const float* x, float* out, int n) {
    __shared__ float s[RIGHT ? 65 : 64];
    s[threadIdx.x + 1] = x[threadIdx.x];  // FAULT: out_of_bounds
    __syncthreads();
    out[threadIdx.x] = threadIdx.x ? s[threadIdx.x] : 0.0f;
}
LAUNCH(shared_overflow, shared_overflow<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void dynamic_overflow(const float* x, float* out, int n) {
    extern __shared__ float d[];
    d[threadIdx.x] = x[threadIdx.x];  // FAULT: out_of_bounds
    __syncthreads();
    out[threadIdx.x] = d[threadIdx.x];
}
LAUNCH(dynamic_overflow,
       size_t bytes = (RIGHT ? 64 : 32) * sizeof(float);
       dynamic_overflow<RIGHT><<<1, 64, bytes, stream>>>(x, out, n))

template <bool RIGHT> __global__ void vector_tail(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < (RIGHT ? n : n + 3) / 4) {
        float4 v = ((const float4*)x)[i];  // FAULT: out_of_bounds
        out[i] = v.x + v.y + v.z + v.w;
    }
}
LAUNCH(vector_tail, vector_tail<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void far_away(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = x[(long long)i * (RIGHT ? 1 : 100000000)];  // FAULT: out_of_bounds
}
LAUNCH(far_away, far_away<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void null_read(const float* x, float* out, const float* missing) {
    float more = RIGHT && !missing ? 0.0f : missing[threadIdx.x];  // FAULT: out_of_bounds
    out[threadIdx.x] = x[threadIdx.x] + more;
}
LAUNCH(null_read, null_read<RIGHT><<<1, 32, 0, stream>>>(x, out, nullptr))

template <bool RIGHT>
__global__ void host_pointer(const float* x, float* out, const float* pointer, float value) {
    out[threadIdx.x] = x[threadIdx.x] * (RIGHT ? value : *pointer);  // FAULT: out_of_bounds
}
LAUNCH(host_pointer,
       float scale = 2.0f;
       host_pointer<RIGHT><<<1, 32, 0, stream>>>(x, out, &scale, scale))

template <bool RIGHT> __global__ void past_scratch(const float* x, float* out, float* scratch) {
    scratch[threadIdx.x] = x[threadIdx.x];  // FAULT: out_of_bounds
    out[threadIdx.x] = x[threadIdx.x];
}
LAUNCH(past_scratch,
       float* scratch;
       cudaError_t error = cudaMalloc(&scratch, (RIGHT ? 32 : 31) * sizeof(float));
       if (error != cudaSuccess) return error;
       past_scratch<RIGHT><<<1, 32, 0, stream>>>(x, out, scratch);
       cudaFree(scratch))

template <bool RIGHT> __global__ void atomic_outside(const float* x, float* out, int n) {
    unsigned i = threadIdx.x;
    atomicAdd(&out[RIGHT ? i % 8 : i * 8], x[i]);  // FAULT: out_of_bounds
}
LAUNCH(atomic_outside, atomic_outside<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void misaligned(const float* x, float* out, int n) {
    float4 v = *(const float4*)(x + (RIGHT ? 4 : 1) + 4 * threadIdx.x);  // FAULT: misaligned
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
LAUNCH(misaligned, misaligned<RIGHT><<<1, 8, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void misaligned_half2(const float* x, float* out, int n) {
    const __half* h = (const __half*)x + (RIGHT ? 0 : 1);
    __half2 v = *(const __half2*)(h + 2 * threadIdx.x);  // FAULT: misaligned
    out[threadIdx.x] = __low2float(v) + __high2float(v);
}
LAUNCH(misaligned_half2, misaligned_half2<RIGHT><<<1, 8, 0, stream>>>(x, out, n))

// -------------------------------------------------------- races in shared memory

template <bool RIGHT> __global__ void no_barrier(const float* x, float* out, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    if (RIGHT) __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];  // FAULT: race
}
LAUNCH(no_barrier, no_barrier<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void second_barrier(const float* x, float* out, int n) {
    __shared__ float s[64];
    float sum = 0.0f;
    for (int k = 0; k < 2; ++k) {
        s[threadIdx.x] = x[threadIdx.x] * k;  // FAULT: race
        __syncthreads();
        sum += s[63 - threadIdx.x];
        if (RIGHT) __syncthreads();
    }
    out[threadIdx.x] = sum;
}
LAUNCH(second_barrier, second_barrier<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void no_syncwarp(const float* x, float* out, int n) {
    __shared__ float s[32];
    s[threadIdx.x] = x[threadIdx.x];
    if (RIGHT) __syncwarp();
    out[threadIdx.x] = s[31 - threadIdx.x];  // FAULT: race
}
LAUNCH(no_syncwarp, no_syncwarp<RIGHT><<<1, 32, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void warp_tail(const float* x, float* out, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int half = 32; half > 0; half /= 2) {
            if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];  // FAULT: race
            if (RIGHT) __syncwarp();
        }
        if (threadIdx.x == 0) out[0] = s[0];
    }
}
LAUNCH(warp_tail, warp_tail<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void syncwarp_for_block(const float* x, float* out, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = s[RIGHT ? threadIdx.x ^ 1 : 63 - threadIdx.x];  // FAULT: race
}
LAUNCH(syncwarp_for_block, syncwarp_for_block<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void narrow_syncwarp(const float* x, float* out, int n) {
    __shared__ float s[32];
    s[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 16) {
        __syncwarp(0x0000ffffu);
    } else {
        __syncwarp(0xffff0000u);
    }
    out[threadIdx.x] = s[RIGHT ? threadIdx.x ^ 15 : 31 - threadIdx.x];  // FAULT: race
}
LAUNCH(narrow_syncwarp, narrow_syncwarp<RIGHT><<<1, 32, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void shared_counter(const float* x, float* out, int n) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    bool counts = x[threadIdx.x] > 0.0f;
    if (RIGHT && counts) atomicAdd(&count, 1);
    if (!RIGHT && counts) count += 1;  // FAULT: race
    __syncthreads();
    if (threadIdx.x == 0) out[0] = (float)count;
}
LAUNCH(shared_counter, shared_counter<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void read_beside_atomic(const float* x, float* out, int n) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, 1);
    if (RIGHT) __syncthreads();
    if (threadIdx.x == 63) out[0] = (float)count;  // FAULT: race
}
LAUNCH(read_beside_atomic, read_beside_atomic<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void scan_in_place(const float* x, float* out, int n) {
    __shared__ float s[64];
    int i = threadIdx.x;
    s[i] = x[i];
    __syncthreads();
    for (int step = 1; step < 64; step *= 2) {
        if (RIGHT) {
            float other = i >= step ? s[i - step] : 0.0f;
            __syncthreads();
            s[i] += other;
        } else if (i >= step) {
            s[i] += s[i - step];  // FAULT: race
        }
        __syncthreads();
    }
    out[i] = s[i];
}
LAUNCH(scan_in_place, scan_in_place<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void half_race(const float* x, float* out, int n) {
    __shared__ __half s[66];  // neighbors share a word, not a byte: that is no race
    s[threadIdx.x] = __float2half(x[threadIdx.x]);
    if (!RIGHT) s[threadIdx.x + 1] = __float2half(1.0f);  // FAULT: race
    __syncthreads();
    out[threadIdx.x] = __half2float(s[threadIdx.x]);
}
LAUNCH(half_race, half_race<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void broadcast_slot(const float* x, float* out, int n) {
    __shared__ float total[RIGHT ? 2 : 1];
    float v = x[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(FULL, v, lanes);
    if (threadIdx.x % 32 == 0) total[RIGHT ? threadIdx.x / 32 : 0] = v;  // FAULT: race
    __syncthreads();
    float sum = total[0];
    if (RIGHT) sum += total[RIGHT];
    out[threadIdx.x] = sum;
}
LAUNCH(broadcast_slot, broadcast_slot<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void dynamic_race(const float* x, float* out, int n) {
    extern __shared__ float d[];
    float* upper = d + (RIGHT ? 64 : 32);
    d[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 32) upper[threadIdx.x] = 0.0f;  // FAULT: race
    __syncthreads();
    out[threadIdx.x] = d[threadIdx.x];
}
LAUNCH(dynamic_race, dynamic_race<RIGHT><<<1, 64, 96 * sizeof(float), stream>>>(x, out, n))

// -------------------------------------------------------- races in global memory

template <bool RIGHT> __global__ void blocks_one_address(const float* x, float* out, int n) {
    if (threadIdx.x == 0) out[RIGHT ? blockIdx.x : 0] = x[blockIdx.x];  // FAULT: race
}
LAUNCH(blocks_one_address, blocks_one_address<RIGHT><<<4, 32, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void blocks_sum(const float* x, float* out, int n) {
    if (RIGHT && threadIdx.x == 0) atomicAdd(&out[0], x[blockIdx.x]);
    if (!RIGHT && threadIdx.x == 0) out[0] += x[blockIdx.x];  // FAULT: race
}
LAUNCH(blocks_sum, blocks_sum<RIGHT><<<4, 32, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void neighbor_in_place(const float* x, float* out, int n) {
    int i = blockIdx.x * 16 + threadIdx.x;
    if (i + 1 < 64) out[i] = RIGHT ? x[i + 1] : out[i + 1];  // FAULT: race
}
LAUNCH(neighbor_in_place, neighbor_in_place<RIGHT><<<4, 16, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void global_no_barrier(const float* x, float* out, int n) {
    out[threadIdx.x] = x[threadIdx.x];
    if (RIGHT) __syncthreads();
    if (threadIdx.x < 32) out[threadIdx.x + 64] = out[threadIdx.x + 32];  // FAULT: race
}
LAUNCH(global_no_barrier, global_no_barrier<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

__device__ unsigned int arrived;

// The last thread block to arrive adds up what all have written.
template <bool RIGHT> __global__ void no_fence(const float* x, float* out, int n) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        out[1 + blockIdx.x] = x[blockIdx.x];
        if (RIGHT) __threadfence();
        last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0.0f;
        for (int b = 0; b < 4; ++b) sum += out[1 + b];  // FAULT: race
        out[0] = sum;
    }
}
LAUNCH(no_fence, no_fence<RIGHT><<<4, 32, 0, stream>>>(x, out, n))

__device__ int hits;

template <bool RIGHT> __global__ void device_variable(const float* x, float* out, int n) {
    bool counts = x[threadIdx.x] > 0.0f;
    if (RIGHT && counts) atomicAdd(&hits, 1);
    if (!RIGHT && counts) hits = hits + 1;  // FAULT: race
    out[threadIdx.x] = x[threadIdx.x];
}
LAUNCH(device_variable, device_variable<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

// ------------------------------------------------------ uninitialized shared memory

template <bool RIGHT> __global__ void unwritten(const float* x, float* out, int n) {
    __shared__ float s[64];
    if (RIGHT || threadIdx.x < 63) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];  // FAULT: uninitialized
}
LAUNCH(unwritten, unwritten<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void unwritten_counter(const float* x, float* out, int n) {
    __shared__ int count;
    if (RIGHT && threadIdx.x == 0) count = 0;
    if (RIGHT) __syncthreads();
    atomicAdd(&count, 1);  // FAULT: uninitialized
    __syncthreads();
    out[threadIdx.x] = (float)count;
}
LAUNCH(unwritten_counter, unwritten_counter<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void unwritten_dynamic(const float* x, float* out, int n) {
    extern __shared__ float d[];
    if (RIGHT || blockIdx.x == 0) d[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = d[threadIdx.x];  // FAULT: uninitialized
}
LAUNCH(unwritten_dynamic,
       unwritten_dynamic<RIGHT><<<2, 32, 32 * sizeof(float), stream>>>(x, out, n))

template <bool RIGHT> __global__ void partial_warps(const float* x, float* out, int n) {
    __shared__ float part[32];
    float v = x[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(FULL, v, lanes);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        bool none = RIGHT && threadIdx.x >= blockDim.x / 32;
        float sum = none ? 0.0f : part[threadIdx.x];  // FAULT: uninitialized
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(FULL, sum, lanes);
        if (threadIdx.x == 0) out[0] = sum;
    }
}
LAUNCH(partial_warps, partial_warps<RIGHT><<<1, 96, 0, stream>>>(x, out, n))

// ------------------------------------------------------------ barriers and deadlocks

template <bool RIGHT> __global__ void early_return(const float* x, float* out, int n) {
    __shared__ float s[64];
    if (!RIGHT && threadIdx.x >= 40) return;
    if (threadIdx.x < 40) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();  // FAULT: divergent_barrier
    if (threadIdx.x < 40) out[threadIdx.x] = s[39 - threadIdx.x];
}
LAUNCH(early_return, early_return<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void barrier_in_branches(const float* x, float* out, int n) {
    __shared__ float s[64];
    if (threadIdx.x < 32) {
        s[threadIdx.x] = x[threadIdx.x];
        if (!RIGHT) __syncthreads();
    } else {
        s[threadIdx.x] = -x[threadIdx.x];
        if (!RIGHT) __syncthreads();  // FAULT: divergent_barrier
    }
    if (RIGHT) __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}
LAUNCH(barrier_in_branches, barrier_in_branches<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void barrier_in_loop(const float* x, float* out, int n) {
    float sum = 0.0f;
    int turns = threadIdx.x < 32 ? 2 : 3;
    for (int k = 0; k < (RIGHT ? 3 : turns); ++k) {
        if (k < turns) sum += x[threadIdx.x];
        __syncthreads();  // FAULT: divergent_barrier
    }
    out[threadIdx.x] = sum;
}
LAUNCH(barrier_in_loop, barrier_in_loop<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void warp_against_block(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) {
        v += __shfl_xor_sync(RIGHT ? 0x0000ffffu : FULL, v, 1);  // FAULT: deadlock
    } else if (!RIGHT) {
        __syncthreads();
    }
    if (RIGHT) __syncthreads();
    out[threadIdx.x] = v;
}
LAUNCH(warp_against_block, warp_against_block<RIGHT><<<1, 32, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void masks_disagree(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    unsigned mask = threadIdx.x < 16 ? (RIGHT ? 0x0000ffffu : FULL) : 0xffff0000u;
    v += __shfl_xor_sync(mask, v, 1);  // FAULT: deadlock
    __syncthreads();
    out[threadIdx.x] = v;
}
LAUNCH(masks_disagree, masks_disagree<RIGHT><<<1, 32, 0, stream>>>(x, out, n))

// ------------------------------------------------------------------------- warps

template <bool RIGHT> __global__ void returned_lane(const float* x, float* out, int n) {
    if (!RIGHT && threadIdx.x >= 24) return;
    float v = threadIdx.x < 24 ? x[threadIdx.x] : 0.0f;
    v += __shfl_down_sync(FULL, v, 8);  // FAULT: inactive_lane
    if (threadIdx.x < 24) out[threadIdx.x] = v;
}
LAUNCH(returned_lane, returned_lane<RIGHT><<<1, 32, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void lane_outside_mask(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) {
        for (int step = RIGHT ? 8 : 16; step > 0; step /= 2)
            v += __shfl_down_sync(0x0000ffffu, v, step, RIGHT ? 16 : 32);  // FAULT: inactive_lane
    }
    out[threadIdx.x] = v;
}
LAUNCH(lane_outside_mask, lane_outside_mask<RIGHT><<<1, 32, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void last_partial_warp(const float* x, float* out, int n) {
    float v = !RIGHT || threadIdx.x < 40 ? x[threadIdx.x] : 0.0f;
    for (int lanes = 16; lanes > 0; lanes /= 2)
        v += __shfl_xor_sync(FULL, v, lanes);  // FAULT: inactive_lane
    if (threadIdx.x == 0) out[0] = v;
}
LAUNCH(last_partial_warp, last_partial_warp<RIGHT><<<1, RIGHT ? 64 : 40, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void not_in_own_mask(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    unsigned mask = RIGHT && threadIdx.x >= 16 ? 0xffff0000u : 0x0000ffffu;
    v += __shfl_xor_sync(mask, v, 1, 16);  // FAULT: wrong_mask
    out[threadIdx.x] = v;
}
LAUNCH(not_in_own_mask, not_in_own_mask<RIGHT><<<1, 32, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void shuffles_in_branches(const float* x, float* out, int n) {
    float v = x[threadIdx.x];
    if (RIGHT) {
        float other = __shfl_xor_sync(FULL, v, 1);
        v = threadIdx.x % 2 ? v + other : v - other;
    } else if (threadIdx.x % 2) {
        v += __shfl_xor_sync(FULL, v, 1);
    } else {
        v -= __shfl_xor_sync(FULL, v, 1);  // FAULT: divergent_collective
    }
    out[threadIdx.x] = v;
}
LAUNCH(shuffles_in_branches, shuffles_in_branches<RIGHT><<<1, 32, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void tile_race(const float* x, float* out, int n) {
    namespace cg = cooperative_groups;
    __shared__ float s[64];
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    s[threadIdx.x] = x[threadIdx.x];
    tile.sync();
    out[threadIdx.x] = s[threadIdx.x ^ (RIGHT ? 8 : 16)];  // FAULT: race
}
LAUNCH(tile_race, tile_race<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

// --------------------------------------------------- structs that functions take and return

struct Pair {
    float value, weight;
};

__device__ float product(Pair p) { return p.value * p.weight; }

__device__ Pair combine(Pair a, Pair b) {
    return {a.value * a.weight + b.value * b.weight, a.weight + b.weight};
}

template <bool RIGHT> __global__ void struct_by_value(const float* x, float* out, int n) {
    const Pair* pairs = (const Pair*)x;
    unsigned i = threadIdx.x;
    if (!RIGHT || i < n / 2) out[i] = product(pairs[i]);  // FAULT: out_of_bounds
}
LAUNCH(struct_by_value, struct_by_value<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void struct_returned(const float* x, float* out, int n) {
    __shared__ Pair s[65];
    s[threadIdx.x] = {x[threadIdx.x], 1.0f};
    if (threadIdx.x == 0) s[64] = {0.0f, 0.0f};
    __syncthreads();
    if (RIGHT) {
        Pair sum = combine(s[threadIdx.x], s[threadIdx.x + 1]);
        __syncthreads();
        s[threadIdx.x] = sum;
    } else {
        s[threadIdx.x] = combine(s[threadIdx.x], s[threadIdx.x + 1]);  // FAULT: race
    }
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x].value;
}
LAUNCH(struct_returned, struct_returned<RIGHT><<<1, 64, 0, stream>>>(x, out, n))
