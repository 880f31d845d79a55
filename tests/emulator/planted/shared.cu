// Shared memory: races in every pairing, barriers, reads of what is not written, bounds.
#include <cooperative_groups.h>
#include <cub/cub.cuh>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

//: pairings
// Thread 3 of thread block 0 and another thread access one word: in shared memory (0) or in global.
__global__ void k(int* out, int where, int a, int b, int block, int thread, bool ordered) {
    __shared__ int own;
    int* p = where ? out : &own;
    volatile int* v = p;
    int t = threadIdx.x;
    if (t == 0 && !where) own = 0;
    __syncthreads();
    if (t == 3 && blockIdx.x == 0) {
        if (a == 0) out[8] = *p;           // @load
        if (a == 1) *p = 3;                // @store
        if (a == 2) out[8] = *v;           // @vload
        if (a == 3) *v = 3;                // @vstore
        if (a == 4) atomicAdd(p, 3);       // @atomic
    }
    if (ordered) __syncthreads();
    if (t == thread && blockIdx.x == block) {
        if (b == 0) out[9] = *p;
        if (b == 1) *p = 5;
        if (b == 2) out[9] = *v;
        if (b == 3) *v = 5;
        if (b == 4) atomicAdd(p, 5);
    }
}
RUN
    for (int i = 0; i < 50; ++i) k<<<1, 64, 0, stream>>>((int*)out, i / 25, i / 5 % 5, i % 5, 0, i % 2 ? 40 : 4, true);
    //! race @load: k<<<1, 64, 0, stream>>>((int*)out, 0, 0, 1, 0, 40, false);
    //! race @load: k<<<1, 64, 0, stream>>>((int*)out, 0, 0, 3, 0, 40, false);
    //! race @load: k<<<1, 64, 0, stream>>>((int*)out, 0, 0, 4, 0, 40, false);
    //! race @store: k<<<1, 64, 0, stream>>>((int*)out, 0, 1, 0, 0, 40, false);
    //! race @store: k<<<1, 64, 0, stream>>>((int*)out, 0, 1, 1, 0, 40, false);
    //! race @store: k<<<1, 64, 0, stream>>>((int*)out, 0, 1, 2, 0, 40, false);
    //! race @store: k<<<1, 64, 0, stream>>>((int*)out, 0, 1, 3, 0, 40, false);
    //! race @store: k<<<1, 64, 0, stream>>>((int*)out, 0, 1, 4, 0, 40, false);
    //! race @vload: k<<<1, 64, 0, stream>>>((int*)out, 0, 2, 1, 0, 40, false);
    //! race @vstore: k<<<1, 64, 0, stream>>>((int*)out, 0, 3, 0, 0, 40, false);
    //! race @vstore: k<<<1, 64, 0, stream>>>((int*)out, 0, 3, 1, 0, 40, false);
    //! race @atomic: k<<<1, 64, 0, stream>>>((int*)out, 0, 4, 0, 0, 40, false);
    //! race @atomic: k<<<1, 64, 0, stream>>>((int*)out, 0, 4, 1, 0, 40, false);
    //! race @store: k<<<1, 64, 0, stream>>>((int*)out, 0, 1, 0, 0, 4, false);
    //! race @store: k<<<1, 64, 0, stream>>>((int*)out, 0, 1, 1, 0, 4, false);
    //! race @store: k<<<1, 64, 0, stream>>>((int*)out, 0, 1, 4, 0, 4, false);
    //! race @atomic: k<<<1, 64, 0, stream>>>((int*)out, 0, 4, 0, 0, 4, false);
    //! race @load: k<<<2, 64, 0, stream>>>((int*)out, 1, 0, 1, 1, 4, false);
    //! race @load: k<<<2, 64, 0, stream>>>((int*)out, 1, 0, 3, 1, 4, false);
    //! race @load: k<<<2, 64, 0, stream>>>((int*)out, 1, 0, 4, 1, 4, false);
    //! race @store: k<<<2, 64, 0, stream>>>((int*)out, 1, 1, 0, 1, 4, false);
    //! race @store: k<<<2, 64, 0, stream>>>((int*)out, 1, 1, 1, 1, 4, false);
    //! race @store: k<<<2, 64, 0, stream>>>((int*)out, 1, 1, 2, 1, 4, false);
    //! race @store: k<<<2, 64, 0, stream>>>((int*)out, 1, 1, 3, 1, 4, false);
    //! race @store: k<<<2, 64, 0, stream>>>((int*)out, 1, 1, 4, 1, 4, false);
    //! race @vload: k<<<2, 64, 0, stream>>>((int*)out, 1, 2, 1, 1, 4, false);
    //! race @vstore: k<<<2, 64, 0, stream>>>((int*)out, 1, 3, 0, 1, 4, false);
    //! race @vstore: k<<<2, 64, 0, stream>>>((int*)out, 1, 3, 1, 1, 4, false);
    //! race @atomic: k<<<2, 64, 0, stream>>>((int*)out, 1, 4, 0, 1, 4, false);
    //! race @atomic: k<<<2, 64, 0, stream>>>((int*)out, 1, 4, 1, 1, 4, false);
    //! race @store: k<<<1, 64, 0, stream>>>((int*)out, 1, 1, 0, 0, 40, false);
    //! race @store: k<<<1, 64, 0, stream>>>((int*)out, 1, 1, 4, 0, 4, false);
    //! race @atomic: k<<<1, 64, 0, stream>>>((int*)out, 1, 4, 0, 0, 40, false);
    //! race @load: k<<<2, 64, 0, stream>>>((int*)out, 1, 0, 1, 1, 4, true);
END

//: pairings_in_no_order
// Loads, atomics, and stores of the same value need none.
__global__ void k(float* out) {
    __shared__ int s;
    if (threadIdx.x == 0) s = 0;
    __syncthreads();
    out[threadIdx.x] = s + *(volatile int*)&s;
    __syncthreads();
    atomicAdd(&s, 1);
    atomicMax((int*)out + 90, threadIdx.x);
    atomicXor((int*)out + 91, 1);
}
RUN k<<<1, 64, 0, stream>>>(out);

//: tree
//= out[0] == x[:64].sum()
__global__ void k(const float* x, float* out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    //! out_of_bounds: s[t + 1] = x[t]; if (t == 0) s[0] = 0;
    //! race+uninitialized: s[t / 2] = x[t];
    //! uninitialized @sum: if (t != 63) s[t] = x[t];
    __syncthreads();
    //! race @sum:
    //! race @sum: __syncwarp();
    for (int half = 32; half > 0; half /= 2) {
        //! out_of_bounds @sum: for (int half = 33; half > 0; half /= 2) {
        //! out_of_bounds @sum: for (int half = 64; half > 0; half /= 2) {
        if (t < half) s[t] += s[t + half];  // @sum
        //! race: if (t <= half && t + half < 64) s[t] += s[t + half];
        //! race: s[t] += s[(t + half) % 64];
        __syncthreads();
        //! race @sum:
        //! race @sum: if (half > 16) __syncthreads();
        //! race @sum: if (half > 32) __syncthreads();
        //! divergent_barrier: if (t < half) __syncthreads();
        //! race @sum: __threadfence_block();
    }
    if (t == 0) out[0] = s[0];
    //! race: if (t == 0) out[0] = s[0]; s[(t + 1) % 64] = 0;
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: rounds
//= (out[:64] == 3 * x[:64].flip(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ float s[64], other[64];
    int t = threadIdx.x;
    float sum = 0;
    other[t] = 1;
    //! race+out_of_bounds: other[t - 1] = 1;
    //! out_of_bounds: (&s[0])[64 + t] = 1;
    for (int round = 0; round < 3; ++round) {
        s[t] = x[t] * (round == 1 ? 2 : round == 2 ? 0 : other[t]);  // @fill
        __syncthreads();
        //! race @fill:
        sum += s[63 - t];
        //! out_of_bounds: sum += s[64 - t];
        __syncthreads();
        //! race @fill:
        //! race @fill: if (round == 1) __syncthreads();
        //! race+divergent_barrier: if (x[t] < 33) __syncthreads();
        //! divergent_barrier: if (t > 50) return; __syncthreads();
    }
    out[t] = sum;
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: transposed
//= (out[:64].view(8, 8) == x[:64].view(8, 8).T).all()
__global__ void k(const float* x, float* out) {
    __shared__ float tile[8][9];
    int column = threadIdx.x, row = threadIdx.y;
    tile[row][column] = x[row * 8 + column];
    //! race: tile[row][column ^ 1] = x[row * 8 + column]; tile[0][0] = x[0];
    //! uninitialized @out: if (column) tile[row][column] = x[row * 8 + column];
    __syncthreads();
    //! race @out:
    //! race @out: __syncwarp();
    //! race @out: __threadfence();
    out[row * 8 + column] = tile[column][row];  // @out
    //! uninitialized: out[row * 8 + column] = tile[column][row + 1];
    //! race: out[row * 8] = tile[column][row];
}
RUN k<<<1, dim3(8, 8), 0, stream>>>(x, out);
//! race+uninitialized @out: k<<<1, dim3(8, 7), 0, stream>>>(x, out); k<<<2, dim3(8, 8), 0, stream>>>(x, out);

//: bins
//= ints[:8].tolist() == [8] * 8
__global__ void k(const float* x, int* out) {
    __shared__ int bins[8];
    int t = threadIdx.x;
    if (t < 8) bins[t] = 0;
    //! uninitialized @add:
    //! uninitialized @add: if (t < 7) bins[t] = 0;
    //! race: if (t < 9) bins[t % 8] = t;
    __syncthreads();
    //! race @add:
    atomicAdd(&bins[(int)x[t] % 8], 1);  // @add
    //! race: bins[(int)x[t] % 8] += 1;
    //! race: ++*(volatile int*)&bins[(int)x[t] % 8];
    //! out_of_bounds: atomicAdd(&bins[(int)x[t] % 9], 1);
    __syncthreads();
    //! race @out:
    if (t < 8) out[t] = bins[t];  // @out
}
RUN k<<<1, 64, 0, stream>>>(x, (int*)out);

//: halves
// Neighbors share a word, not a byte: that is no race.
//= (out[:64] == x[:64] + x[1:65].clone().index_fill(0, torch.tensor(63), 0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ __half s[66];
    char* bytes = (char*)s;
    int t = threadIdx.x;
    if (t == 0) s[64] = s[65] = __float2half(0);
    s[t] = __float2half(x[t]);
    //! race: s[t] = __float2half(x[t]); if (t == 9) *(float*)&s[20] = 0;
    //! race: s[t] = __float2half(x[t]); if (t == 9) bytes[41] = 0;
    //! misaligned: s[t] = __float2half(x[t]); if (t == 9) *(float*)(bytes + 2) = 0;
    __syncthreads();
    out[t] = __half2float(s[t]) + __half2float(s[t + 1]);
    //! misaligned: __half2 both = *(__half2*)(s + t); out[t] = __low2float(both) + __high2float(both);
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: dynamic
//= (out[:64] == x[:64].flip(0)).all()
__global__ void k(const float* x, float* out, int* before) {
    extern __shared__ float s[];
    float* mine = s + 32;
    int t = threadIdx.x;
    if (t < 32) s[t] = 0;
    mine[t] = x[t];  // @fill
    //! race: s[t] = mine[t] = x[t];
    __syncthreads();
    out[t] = mine[63 - t];
    //! uninitialized: mine[64] = mine[95]; out[t] = mine[63 - t];
    //! out_of_bounds: out[t] = mine[163 - t];
    //! out_of_bounds: out[t] = mine[-33 - t];
}
RUN k<<<1, 64, 96 * 4 + 512 - 384, stream>>>(x, out, nullptr);
//! out_of_bounds @fill: k<<<1, 64, 95 * 4, stream>>>(x, out, nullptr);
//! out_of_bounds @fill: k<<<1, 64, 0, stream>>>(x, out, nullptr);
//! out_of_bounds @fill: k<<<1, 64, 96, stream>>>(x, out, nullptr);

//: flag_in_shared
//= out[0] == 1
__global__ void k(const float* x, float* out) {
    __shared__ float data;
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        data = x[0];
        __threadfence_block();
        //! race @data:
        flag = 1;
        //! race @data: flag = 1; data = x[1];
        //! time_limit @wait: flag = 0;
    } else if (threadIdx.x == 32) {
        while (flag == 0) {}  // @wait
        __threadfence_block();
        //! race @data:
        out[0] = data;  // @data
    }
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: lock_in_shared
//= (out[:64] == x[:64].sum()).all()
__global__ void k(const float* x, float* out) {
    __shared__ int lock;
    __shared__ float sum;
    if (threadIdx.x == 0) lock = 0, sum = 0;
    __syncthreads();
    while (atomicCAS(&lock, 0, 1) != 0) {}  // @wait
    //! race @sum: lock = 1;
    //! race @sum: while (atomicCAS(&lock, threadIdx.x % 2, 1) > 1) {}
    __threadfence_block();
    //! race @sum:
    sum += x[threadIdx.x];  // @sum
    __threadfence_block();
    //! race @sum:
    atomicExch(&lock, 0);
    //! time_limit @wait: atomicExch(&lock, 2);
    //! race: lock = 0;
    __syncthreads();
    out[threadIdx.x] = sum;
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: double_buffer
//= (out[:32] == x[:96].view(3, 32).flip(1).sum(0)).all()
__global__ void k(const float* x, float* out) {
    __shared__ float s[2][32];
    int t = threadIdx.x;
    float sum = 0;
    s[0][t] = x[t];
    for (int i = 0; i < 3; ++i) {
        __syncthreads();
        //! race @read:
        //! race @read: if (i) __syncthreads();
        if (i < 2) s[(i + 1) % 2][t] = x[(i + 1) * 32 + t];  // @write
        //! race @read: if (i < 2) s[i % 2][t] = x[(i + 1) * 32 + t];
        //! out_of_bounds: s[(i + 1) % 2][t] = x[(i + 1) * 32 + t];
        sum += s[i % 2][31 - t];  // @read
        //! race: sum += s[(i + 1) % 2][31 - t];
    }
    out[t] = sum;
}
RUN k<<<1, 32, 0, stream>>>(x, out);

//: any_thread_sets
// A flag that any thread may set to the same value.
//= out[0] == 1
__global__ void k(const float* x, float* out) {
    __shared__ bool any;
    any = false;
    //! race: any = threadIdx.x % 2;
    __syncthreads();
    //! race @set:
    if (x[threadIdx.x] > 5) any = true;  // @set
    //! race: any = x[threadIdx.x] > 5;
    __syncthreads();
    //! race @read:
    out[threadIdx.x] = any;  // @read
}
RUN k<<<1, 64, 0, stream>>>(x, out);

//: warps_in_turn
//= (out[:96] == x[:96].sum()).all()
__global__ void k(const float* x, float* out) {
    __shared__ int turn;
    __shared__ float sum;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) turn = 0, sum = 0;
    __syncthreads();
    if (lane == 0) {
        while (atomicAdd(&turn, 0) != warp) {}  // @wait
        //! race @sum:
        __threadfence_block();
    }
    __syncwarp();
    for (int i = 0; i < 32; ++i) {
        if (i == lane) sum += x[threadIdx.x];  // @sum
        __syncwarp();
        //! race @sum:
    }
    if (lane == 0) {
        __threadfence_block();
        //! race @sum:
        atomicExch(&turn, warp + 1);
        //! time_limit @wait: atomicExch(&turn, warp);
    }
    __syncthreads();
    out[threadIdx.x] = sum;
}
RUN k<<<1, 96, 0, stream>>>(x, out);

//: tile
// A tile for tensor cores begins at a multiple of 32 bytes, and its rows are a multiple of 16 bytes apart.
//= (out[:16] == x[0] * 32).all()
__global__ void k(const float* x, float* out) {
    __shared__ alignas(32) __half a[16 * 24 + 8];
    __shared__ alignas(32) float c[16 * 20];
    for (int i = threadIdx.x; i < 16 * 24 + 8; i += 32) a[i] = __float2half(x[0]);
    __syncthreads();
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> left;
    fragment<matrix_b, 16, 16, 16, __half, col_major> right;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 16.0f);
    load_matrix_sync(left, a, 24);
    //! misaligned: load_matrix_sync(left, a, 20);
    //! misaligned: load_matrix_sync(left, a + 8, 24);
    load_matrix_sync(right, a, 24);
    //! misaligned: load_matrix_sync(right, a, 17);
    mma_sync(sum, left, right, sum);
    store_matrix_sync(c, sum, 20, mem_row_major);
    //! misaligned: store_matrix_sync(c, sum, 18, mem_row_major);
    //! misaligned: store_matrix_sync(c + 4, sum, 20, mem_row_major);
    __syncthreads();
    if (threadIdx.x < 16) out[threadIdx.x] = c[threadIdx.x];
}
RUN k<<<1, 32, 0, stream>>>(x, out);

//: storage_of_cub
//= out[0] == 2 * x[:96].sum() + 96
__global__ void k(const float* x, float* out) {
    using Reduce = cub::BlockReduce<float, 96>;
    __shared__ typename Reduce::TempStorage temp;
    float first = Reduce(temp).Sum(x[threadIdx.x]);
    __syncthreads();
    //! race @again:
    float second = Reduce(temp).Sum(x[threadIdx.x] + 1);  // @again
    if (threadIdx.x == 0) out[0] = first + second;
}
RUN k<<<1, 96, 0, stream>>>(x, out);
