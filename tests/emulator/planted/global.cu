// Global memory: thread blocks run in no order; fences, atomics and flags order what they do.
#include <cuda/atomic>
#include <cuda_runtime.h>

//: block_sum
//= out[0] == x[:64].sum()
__global__ void k(const float* x, float* out) {
    float value = x[blockIdx.x * 16 + threadIdx.x];
    atomicAdd(&out[0], value);
    //! race: out[0] += value;
    //! race: if (threadIdx.x == 0) out[0] = 0; atomicAdd(&out[0], value);
    //! race: out[0] = value;
    //! race: atomicAdd(&out[0], value); if (value == 20) out[1] = out[0];
    //! race: out[threadIdx.x] = value;
    //! race: out[blockIdx.x] = value;
    //! race: out[blockIdx.x * 15 + threadIdx.x] = value;
    //! race: float old = out[0]; __threadfence(); atomicExch(&out[0], old + value);
}
RUN cudaMemsetAsync(out, 0, 8, stream); k<<<4, 16, 0, stream>>>(x, out);

//: shift
//= (out[:63] == x[1:64]).all()
__global__ void k(const float* x, float* out) {
    int i = blockIdx.x * 16 + threadIdx.x;
    if (i < 63) out[i] = x[i + 1];
    //! race: if (i < 63) out[i] = out[i + 1];
    //! race: if (i < 63) out[i] = x[i]; __syncthreads(); if (i < 63 && i) out[i] = out[i - 1];
    //! race: if (i < 63) { out[i] = x[i]; __threadfence(); out[i + 1] = 2; }
}
RUN k<<<4, 16, 0, stream>>>(x, out);

//: in_one_block
//= (out[64:96] == x[32:64]).all()
__global__ void k(const float* x, float* out) {
    int t = threadIdx.x;
    out[t] = x[t];  // @write
    __syncthreads();
    //! race @read:
    //! race @read: __threadfence();
    //! race @read: __syncwarp();
    if (t < 32) out[t + 64] = out[t + 32];  // @read
    //! race: if (t < 32) out[64] = out[t + 32];
    //! race: out[t + 32] = out[t];
}
RUN k<<<1, 64, 0, stream>>>(x, out);
//! race @write: k<<<2, 64, 0, stream>>>(x, out); k<<<2, dim3(64, 2), 0, stream>>>(x, out);

//: last_block_adds
//= out[0] == x[:4].sum()
__device__ unsigned arrived;
__global__ void k(const float* x, float* out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        out[1 + blockIdx.x] = x[blockIdx.x];
        __threadfence();
        //! race @sum:
        //! race @sum: __threadfence_block();
        //! race @sum: __syncwarp(1);
        last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
        //! race @sum: last = blockIdx.x == gridDim.x - 1;
        //! race: last = (arrived = (arrived + 1) % gridDim.x) == 0;
        //! race @sum: last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1; out[1 + blockIdx.x] = 1;
    }
    __syncthreads();
    //! race @read:
    if (last && threadIdx.x == 0) {  // @read
        float sum = 0;
        for (int b = 0; b < 4; ++b) sum += out[1 + b];  // @sum
        out[0] = sum;
    }
}
RUN k<<<4, 32, 0, stream>>>(x, out);

//: another_thread_stored
// The thread that counts must have waited for the one that stored.
//= (out[8:12] == x[:4]).all()
__global__ void k(const float* x, float* out) {
    __shared__ bool last;
    if (threadIdx.x == 32) out[1 + blockIdx.x] = x[blockIdx.x];
    if (threadIdx.x == 32) __threadfence();
    __syncthreads();
    //! race @read: __syncwarp();
    if (threadIdx.x == 0) last = atomicAdd((int*)out, 1) == gridDim.x - 1;
    if (threadIdx.x == 0) __threadfence();
    __syncthreads();
    if (last && threadIdx.x < gridDim.x) out[8 + threadIdx.x] = out[1 + threadIdx.x];  // @read
}
RUN cudaMemsetAsync(out, 0, 4, stream); k<<<4, 64, 0, stream>>>(x, out);

//: volatile_flag
//= out[0] == 1
__global__ void k(const float* x, float* out) {
    volatile int* flag = (volatile int*)&out[1];
    if (threadIdx.x == 0) {
        out[2] = x[0];
        __threadfence();
        //! race @read:
        *flag = 1;
        //! race: *(int*)flag = 1;
        //! race @read: *flag = 1; __threadfence(); out[2] = x[1];
    } else if (threadIdx.x == 32) {
        while (*flag != 1) {}
        //! race? @read: if (*flag == 2) return;
        __threadfence();
        //! race @read:
        out[0] = out[2];  // @read
    }
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: atomic_flag
//= out[0] == 1
__global__ void k(const float* x, float* out) {
    int* flag = (int*)&out[1];
    if (threadIdx.x == 32) {
        out[2] = x[0];
        __threadfence();
        //! race @read:
        atomicExch(flag, 1);
        //! race: *flag = 1;
        //! race @read: atomicExch(flag, 1); out[2] = x[1];
    } else if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0) == 0) {}  // @wait
        //! race: while (*flag == 0 && atomicAdd(flag, 0) == 0) {}
        //! race? @read: if (atomicAdd(flag, 0) == 0) x = x + 1;
        __threadfence();
        //! race @read:
        out[0] = out[2];  // @read
    }
}
RUN k<<<1, 64, 0, stream>>>(x, out);
//! time_limit @wait: k<<<1, 32, 0, stream>>>(x, out);

//: release_and_acquire
// libcu++'s atomics carry their fences.
//= out[0] == 1
__global__ void k(const float* x, float* out, int* word) {
    cuda::atomic_ref<int, cuda::thread_scope_device> flag(*word);
    if (threadIdx.x == 0) {
        out[2] = x[0];
        flag.store(1, cuda::memory_order_release);
        //! race @read: flag.store(1, cuda::memory_order_relaxed);
        //! race: *word = 1;
    } else if (threadIdx.x == 32) {
        while (flag.load(cuda::memory_order_acquire) == 0) {}
        //! race @read: while (flag.load(cuda::memory_order_relaxed) == 0) {}
        out[0] = out[2];  // @read
    }
}
RUN k<<<1, 64, 0, stream>>>(x, out, (int*)out + 1);

//: mutex_of_blocks
// A lock that a volatile store opens, between all threads of all thread blocks.
//= out[0] == 3 * x[:48].sum()
__global__ void k(const float* x, float* out) {
    int* lock = (int*)&out[1];
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0, 1) == 0) {
            //! race+time_limit: if (*lock == 0 && atomicCAS(lock, 0, 1) == 0) {
            //! race @sum: if (atomicExch(lock, 1) <= 1) {
            __threadfence();
            //! race @sum:
            out[0] += x[threadIdx.x];  // @sum
            __threadfence();
            //! race @sum:
            //! race @sum: __threadfence_block();
            *(volatile int*)lock = 0;
            //! race: *lock = 0;
            done = true;
        }
    }
}
RUN cudaMemsetAsync(out, 0, 8, stream); k<<<3, 48, 0, stream>>>(x, out);

//: cas_loop
// As in NVIDIA's programming guide: an atomicAdd for double.
//= out.view(torch.float64)[:1].item() == 2 * x[:64].sum() if len(out) % 2 == 0 else True
__global__ void k(const float* x, double* out) {
    unsigned long long* bits = (unsigned long long*)out;
    unsigned long long old = *bits, assumed;
    do {
        assumed = old;
        double sum = x[threadIdx.x] + __longlong_as_double(assumed);
        old = atomicCAS(bits, assumed, __double_as_longlong(sum));
        //! race: *bits = __double_as_longlong(sum);
        //! race: if (threadIdx.x == 5) *bits = 0; old = atomicCAS(bits, assumed, __double_as_longlong(sum));
    } while (assumed != old);
}
RUN k<<<2, 64, 0, stream>>>(x, (double*)out);

//: load_before_cas
__global__ void k(const float* x, unsigned* out) {
    unsigned old = *out;  // @load
    atomicCAS(out, old, old + 1);
    //! race @load: atomicAdd(out, 1);
    out[1 + threadIdx.x] = old;
}
RUN k<<<1, 64, 0, stream>>>(x, (unsigned*)out);

//: look_back
// A prefix sum in one pass: thread blocks take tickets and look back at their predecessors.
//= (out[64:96] == x[:4].cumsum(0).sub(x[:4]).repeat_interleave(8)).all()
__global__ void k(const float* x, float* out, int* state, float* total, float* own) {
    __shared__ int ticket;
    __shared__ float before;
    if (threadIdx.x == 0) {
        ticket = atomicAdd(&state[0], 1);
        volatile int* flags = state + 1;
        own[ticket] = x[ticket];
        __threadfence();
        //! race? @own:
        flags[ticket] = 1;
        float sum = 0;
        for (int b = ticket - 1; b >= 0; --b) {
            int flag;
            while ((flag = flags[b]) == 0) {}
            //! time_limit: while ((flag = flags[b]) != 3) {}
            __threadfence();
            //! race @total:
            if (flag == 2) {
                sum += total[b];  // @total
                break;
            }
            sum += own[b];  // @own
        }
        before = sum;
        total[ticket] = sum + x[ticket];
        __threadfence();
        //! race @total:
        //! race @total: __threadfence_block();
        flags[ticket] = 2;
        //! race @total: flags[ticket] = 2; total[ticket] = sum + x[ticket];
    }
    __syncthreads();
    //! race|out_of_bounds @place:
    out[ticket * 8 + threadIdx.x] = before;  // @place
    //! race: out[ticket + threadIdx.x] = before;
}
RUN cudaMemsetAsync(out, 0, 256, stream); k<<<4, 8, 0, stream>>>(x, out + 64, (int*)out, out + 16, out + 32);

//: packed
// A value and its flag in one word need no fence.
//= ints[2] == 1
__global__ void k(const float* x, unsigned long long* out) {
    volatile unsigned long long* word = out;
    if (threadIdx.x == 32) {
        *word = 1ull << 32 | (unsigned)x[0];
        //! race: *out = 1ull << 32 | (unsigned)x[0];
    } else if (threadIdx.x == 0) {
        unsigned long long seen;
        do seen = *word;
        while (seen >> 32 == 0);
        out[1] = seen;
    }
}
RUN cudaMemsetAsync(out, 0, 8, stream); k<<<1, 64, 0, stream>>>(x, (unsigned long long*)out);

//: last_block_reads_volatile
// All threads store and fence, a barrier, then one counts.
//= (out[64:80] == 3 * x[:16]).all()
__global__ void k(const float* x, float* out, unsigned* count, volatile float* parts) {
    __shared__ bool last;
    parts[blockIdx.x * 16 + threadIdx.x] = x[threadIdx.x];
    __threadfence();
    //! race @reset:
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += parts[b * 16 + threadIdx.x];
    out[threadIdx.x] = sum;
    if (threadIdx.x == 0) *count = 0;  // @reset
    //! race: *(count + threadIdx.x / 8) = threadIdx.x;
}
RUN cudaMemsetAsync(out, 0, 4, stream); k<<<3, 16, 0, stream>>>(x, out + 64, (unsigned*)out, out + 1);

//: semaphore
// A ticket lock.
//= out[0] == x[:40].sum()
__global__ void k(const float* x, float* out, int* next, int* serving) {
    int ticket = atomicAdd(next, 1);
    while (atomicAdd(serving, 0) != ticket) {}
    __threadfence();
    out[0] += x[threadIdx.x];  // @sum
    __threadfence();
    atomicAdd(serving, 1);
    //! race @sum: ++*serving;
}
RUN cudaMemsetAsync(out, 0, 12, stream); k<<<1, 40, 0, stream>>>(x, out, (int*)out + 1, (int*)out + 2);

//: device_variable
//= out[0] == 64
__device__ int hits;
__global__ void k(const float* x, float* out) {
    if (threadIdx.x == 0) hits = 0;
    __syncthreads();
    //! race @count:
    if (x[threadIdx.x] > 0) atomicAdd(&hits, 1);  // @count
    //! race: if (x[threadIdx.x] > 0) hits = hits + 1;
    __syncthreads();
    //! race @out:
    if (threadIdx.x == 63) out[0] = hits;  // @out
}
RUN k<<<1, 64, 0, stream>>>(x, out);
//! race @count: k<<<2, 64, 0, stream>>>(x, out);

//: two_launches
// A launch waits for the one before it in its stream.
//= (out[:32] == 2 * x[:32].flip(0)).all()
__global__ void k(const float* from, float* to, float factor) {
    to[threadIdx.x] = factor * from[31 - threadIdx.x];
}
__global__ void both(const float* x, float* out) {
    out[32 + threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = 2 * out[32 + 31 - threadIdx.x];  // @both
}
RUN k<<<1, 32, 0, stream>>>(x, out + 32, 1); k<<<1, 32, 0, stream>>>(out + 32, out + 64, 1); k<<<1, 32, 0, stream>>>(out + 64, out, 2);
//! race @both: both<<<1, 32, 0, stream>>>(x, out);

//: two_words
// A loop of atomicCAS for each of two words; both words are read first.
//= out[0] == 64 and out[1] == 128
__device__ void raise(int* word, int seen, float by) {
    for (int expected = seen + 1; seen != expected;) {
        expected = seen;
        seen = atomicCAS(word, expected, __float_as_int(__int_as_float(expected) + by));
    }
}
__global__ void k(float* out) {
    int* words = (int*)out;
    int one = words[0], two = words[1];  // @read
    raise(&words[0], one, 1);
    raise(&words[1], two, 2);
    //! race @read: if (threadIdx.x) raise(&words[1], two, 2);
}
RUN k<<<2, 32, 0, stream>>>(out);
