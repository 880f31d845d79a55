// Accesses that atomics, flags and fences order, or do not. Each kernel has one planted fault; with
// RIGHT it is correct. Idioms at the end are correct as they stand, and end in any order of threads.
#include <cuda_runtime.h>

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

// -------------------------------------------------------------- plain stores and atomics

template <bool RIGHT> __global__ void count_in_shared(const float* x, float* out, int n) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;  // FAULT: race
    if (RIGHT) __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    out[threadIdx.x] = count;
}
LAUNCH(count_in_shared, count_in_shared<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void count_in_global(const float* x, float* out, int n) {
    int* count = (int*)out;
    if (threadIdx.x == 0) *count = 0;  // FAULT: race
    if (RIGHT) __syncthreads();
    atomicAdd(count, 1);
}
LAUNCH(count_in_global, count_in_global<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

// Every thread block clears what another one adds to.
template <bool RIGHT> __global__ void clear_in_each(const float* x, float* out, int n) {
    if (!RIGHT && threadIdx.x == 0) out[0] = 0;  // FAULT: race
    __syncthreads();
    atomicAdd(&out[0], x[threadIdx.x]);
}
LAUNCH(clear_in_each, clear_in_each<RIGHT><<<2, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void histogram(const float* x, float* out, int n) {
    __shared__ int bins[32];
    if (threadIdx.x < 32) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[(int)x[threadIdx.x] % 32], 1);
    if (RIGHT) __syncthreads();
    out[threadIdx.x] = bins[threadIdx.x % 32];  // FAULT: race
}
LAUNCH(histogram, histogram<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

// ------------------------------------------------------------------------ flags and fences

template <bool RIGHT> __global__ void flag_without_fence(const float* x, float* out, int n) {
    __shared__ float data;
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        data = x[0];
        if (RIGHT) __threadfence_block();
        flag = 1;
    } else if (threadIdx.x == 32) {
        while (flag == 0) {}
        __threadfence_block();
        out[0] = data;  // FAULT: race
    }
}
LAUNCH(flag_without_fence, flag_without_fence<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void reader_without_fence(const float* x, float* out, int n) {
    volatile int* flag = (volatile int*)&out[1];
    if (threadIdx.x == 0) {
        out[2] = x[0];
        __threadfence();
        *flag = 1;
    } else if (threadIdx.x == 32) {
        while (*flag != 1) {}
        if (RIGHT) __threadfence();
        out[0] = out[2];  // FAULT: race
    }
}
LAUNCH(reader_without_fence, reader_without_fence<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void atomic_flag(const float* x, float* out, int n) {
    int* flag = (int*)&out[1];
    if (threadIdx.x == 32) {
        out[2] = x[0];
        __threadfence();
        atomicExch(flag, 1);
        if (!RIGHT) out[2] = x[1];  // after the flag
    } else if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0) == 0) {}
        __threadfence();
        out[0] = out[2];  // FAULT: race
    }
}
LAUNCH(atomic_flag, atomic_flag<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void plain_flag(const float* x, float* out, int n) {
    __shared__ int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (RIGHT) atomicExch(&flag, 1);
        else flag = 1;  // FAULT: race
    } else if (threadIdx.x == 32) {
        out[0] = atomicAdd(&flag, 0);
    }
}
LAUNCH(plain_flag, plain_flag<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

// Another thread of the thread block stored; the one that counts has waited for none.
template <bool RIGHT> __global__ void counts_too_early(const float* x, float* out, int n) {
    __shared__ bool last;
    if (threadIdx.x == 32) out[1 + blockIdx.x] = x[blockIdx.x];
    if (threadIdx.x == 32) __threadfence();
    if (RIGHT) __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd((int*)out, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last && threadIdx.x < gridDim.x) out[8 + threadIdx.x] = out[1 + threadIdx.x];  // FAULT: race
}
LAUNCH(counts_too_early, cudaMemsetAsync(out, 0, 4, stream);
       counts_too_early<RIGHT><<<4, 64, 0, stream>>>(x, out, n))

// A fence for the thread block is not seen by other thread blocks.
template <bool RIGHT> __global__ void fence_of_block(const float* x, float* out, int n) {
    if (threadIdx.x == 0) {
        out[1 + blockIdx.x] = x[blockIdx.x];
        if (RIGHT) __threadfence();
        else __threadfence_block();
        if (atomicAdd((int*)out, 1) == gridDim.x - 1) {
            __threadfence();
            for (int b = 0; b < gridDim.x; ++b) out[8 + b] = out[1 + b];  // FAULT: race
        }
    }
}
LAUNCH(fence_of_block, cudaMemsetAsync(out, 0, 4, stream);
       fence_of_block<RIGHT><<<4, 32, 0, stream>>>(x, out, n))

// volatile does not make the lanes of a warp wait for one another.
template <bool RIGHT> __global__ void warp_synchronous(const float* x, float* out, int n) {
    __shared__ volatile float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    s[threadIdx.x + 32] = x[threadIdx.x + 32];
    if (RIGHT) __syncwarp();
    out[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x ^ 1];  // FAULT: race
}
LAUNCH(warp_synchronous, warp_synchronous<RIGHT><<<1, 32, 0, stream>>>(x, out, n))

template <bool RIGHT> __global__ void unlocked(const float* x, float* out, int n) {
    __shared__ int lock;
    __shared__ float sum;
    if (threadIdx.x == 0) lock = 0, sum = 0;
    __syncthreads();
    while (atomicCAS(&lock, 0, 1) != 0) {}
    __threadfence_block();
    sum += x[threadIdx.x];  // FAULT: race
    if (RIGHT) __threadfence_block();
    atomicExch(&lock, 0);
    __syncthreads();
    out[threadIdx.x] = sum;
}
LAUNCH(unlocked, unlocked<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

// Lanes that store different values to one place; with RIGHT the same.
template <bool RIGHT> __global__ void all_lanes(const float* x, float* out, int n) {
    out[0] = RIGHT ? x[0] : x[threadIdx.x];  // FAULT: race
}
LAUNCH(all_lanes, all_lanes<RIGHT><<<1, 32, 0, stream>>>(x, out, n))

// The load of the loop, without the loop.
template <bool RIGHT> __global__ void load_beside_atomic(const float* x, float* out, int n) {
    unsigned old = *(unsigned*)out;  // FAULT: race
    if (RIGHT) atomicCAS((unsigned*)out, old, old + 1);
    else atomicAdd((unsigned*)out, 1);
    out[1 + threadIdx.x] = old;
}
LAUNCH(load_beside_atomic, load_beside_atomic<RIGHT><<<1, 64, 0, stream>>>(x, out, n))

// --------------------------------------------------------------------------------- idioms

// As in the programming guide: an atomicAdd for double.
__device__ double add_double(double* address, double value) {
    unsigned long long* bits = (unsigned long long*)address;
    unsigned long long old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
    } while (assumed != old);
    return __longlong_as_double(old);
}
__global__ void cas_loop(const float* x, double* out) { add_double(out, x[threadIdx.x]); }
LAUNCH(cas_loop, cas_loop<<<2, 64, 0, stream>>>(x, (double*)out))

// Lane 31 produces, the others of its warp poll.
__global__ void polls_its_warp(const float* x, float* out) {
    __shared__ volatile int flag;
    __shared__ float data;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 31) {
        data = x[31];
        __threadfence_block();
        flag = 1;
    } else {
        while (flag == 0) __nanosleep(20);
        __threadfence_block();
        out[threadIdx.x] = data;
    }
}
LAUNCH(polls_its_warp, polls_its_warp<<<1, 32, 0, stream>>>(x, out))

// Warps take turns.
__global__ void warps_in_turn(const float* x, float* out) {
    __shared__ int turn;
    __shared__ float sum;
    if (threadIdx.x == 0) turn = 0, sum = 0;
    __syncthreads();
    int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
        while (atomicAdd(&turn, 0) != warp) {}
        __threadfence_block();
    }
    __syncwarp();
    for (int lane = 0; lane < 32; ++lane) {
        if (lane == threadIdx.x % 32) sum += x[threadIdx.x];
        __syncwarp();
    }
    if (threadIdx.x % 32 == 0) {
        __threadfence_block();
        atomicExch(&turn, warp + 1);
    }
    __syncthreads();
    out[threadIdx.x] = sum;
}
LAUNCH(warps_in_turn, warps_in_turn<<<1, 96, 0, stream>>>(x, out))

// A lock that a volatile store opens, between all threads of all thread blocks.
__global__ void global_mutex(const float* x, float* out) {
    int* lock = (int*)&out[1];
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            out[0] += x[threadIdx.x];
            __threadfence();
            *(volatile int*)lock = 0;
            done = true;
        }
    }
}
LAUNCH(global_mutex, cudaMemsetAsync(out, 0, 8, stream);
      global_mutex<<<3, 48, 0, stream>>>(x, out))

// A prefix sum in one pass: thread blocks take tickets and look back at their predecessors.
__global__ void look_back(const float* x, float* out, int* state, volatile float* total, float* own) {
    __shared__ int ticket;
    __shared__ float before;
    if (threadIdx.x == 0) ticket = atomicAdd(&state[0], 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        volatile int* flags = state + 1;
        own[ticket] = x[ticket];
        __threadfence();
        flags[ticket] = 1;
        float sum = 0;
        for (int b = ticket - 1; b >= 0; --b) {
            int flag;
            while ((flag = flags[b]) == 0) {}
            __threadfence();
            if (flag == 2) {
                sum += total[b];
                break;
            }
            sum += own[b];
        }
        before = sum;
        total[ticket] = sum + x[ticket];
        __threadfence();
        flags[ticket] = 2;
    }
    __syncthreads();
    out[ticket * 32 + threadIdx.x] = before;
}
LAUNCH(look_back, cudaMemsetAsync(out, 0, 400, stream);
      look_back<<<8, 32, 0, stream>>>(x, out + 64, (int*)out, out + 16, out + 32))

// Value and flag in one word need no fence.
__global__ void packed_state(const float* x, unsigned long long* out) {
    volatile unsigned long long* word = out;
    if (threadIdx.x == 32) {
        *word = 1ull << 32 | (unsigned)x[0];
    } else if (threadIdx.x == 0) {
        unsigned long long seen;
        do seen = *word;
        while (seen >> 32 == 0);
        out[1] = seen;
    }
}
LAUNCH(packed_state, cudaMemsetAsync(out, 0, 8, stream);
      packed_state<<<1, 64, 0, stream>>>(x, (unsigned long long*)out))

// The last thread block adds up: all threads store and fence, a barrier, then one counts.
__global__ void last_block(const float* x, float* out, unsigned* count, volatile float* parts) {
    __shared__ bool last;
    parts[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += parts[b * 32 + threadIdx.x];
    out[threadIdx.x] = sum;
    if (threadIdx.x == 0) *count = 0;
}
LAUNCH(last_block, cudaMemsetAsync(out, 0, 4, stream);
      last_block<<<3, 32, 0, stream>>>(x, out + 128, (unsigned*)out, out + 1))

// Lanes in a branch ask which of them are there, and one adds for all.
__global__ void aggregated(const float* x, float* out) {
    if (x[threadIdx.x] < 0) return;
    unsigned active = __activemask();
    int leader = __ffs(active) - 1;
    if (threadIdx.x % 32 == leader) atomicAdd(out, (float)__popc(active));
}
LAUNCH(aggregated, cudaMemsetAsync(out, 0, 4, stream);
      aggregated<<<1, 64, 0, stream>>>(x, out))

// A flag that any thread may set.
__global__ void any_above(const float* x, float* out) {
    __shared__ bool any;
    any = false;
    __syncthreads();
    if (x[threadIdx.x] > 5) any = true;
    __syncthreads();
    out[threadIdx.x] = any;
}
LAUNCH(any_above, any_above<<<1, 64, 0, stream>>>(x, out))
