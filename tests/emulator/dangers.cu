// What would end the process: each launcher's fault is in the line marked with its name.
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

__global__ void fill(float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = (float)i;
}
extern "C" cudaError_t fine(float* x) {
    fill<<<1, 32>>>(x, 16);
    return cudaGetLastError();
}
extern "C" cudaError_t returns_nothing(float* x) {  // returns_nothing
    fill<<<1, 32>>>(x, 16);
}

__global__ void hang(volatile float* flag) {
    while (*flag == 0);  // hangs
}
extern "C" cudaError_t hangs(float* flag, int blocks) {
    hang<<<blocks, 256>>>(flag);
    return cudaGetLastError();
}

__global__ void wait_for_last(volatile float* x) {
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 63) {
        x[1] = 7;
        __threadfence();
        flag = 1;
    } else {
        while (!flag);
        x[0] = x[1];
    }
}
extern "C" cudaError_t waits(float* x) {
    wait_for_last<<<1, 64>>>(x);
    return cudaGetLastError();
}

// Registers of every kind keep their values while other threads run.
__global__ void compute(float* x, int n) {
    double sums[6] = {};
    long a = threadIdx.x, b = 1;
    for (long i = 0; i < n; ++i) {
        for (int k = 0; k < 6; ++k) sums[k] += 1.0 / (double)(k + 1);
        a = a * 3 + (i & 7);
        b ^= a;
    }
    float sum = (float)(b & 0xff);
    for (int k = 0; k < 6; ++k) sum += (float)(sums[k] / n);
    x[threadIdx.x] = sum;
}
extern "C" cudaError_t computes(float* x, int n) {
    compute<<<1, 4>>>(x, n);
    return cudaGetLastError();
}

__device__ float deeper(int n, volatile float* x) {
    float own[4];
    own[n & 3] = x[0];
    return n < 0 ? 0 : deeper(n + 1, x) + own[(n + 1) & 3];  // recurses
}
__global__ void recurse(float* x) { x[1] = deeper(0, x); }
extern "C" cudaError_t recurses(float* x) {
    recurse<<<1, 1>>>(x);
    return cudaGetLastError();
}

__global__ void large_array(float* x) {  // overflows
    volatile float own[100000];
    for (int i = 0; i < 100000; ++i) own[i] = x[0];
    x[1] = own[(int)x[2]];
}
extern "C" cudaError_t overflows(float* x) {
    large_array<<<1, 1>>>(x);
    return cudaGetLastError();
}

__global__ void dynamic(float* x) {
    extern __shared__ float s[];
    s[threadIdx.x] = 1;  // forgets_bytes
    x[threadIdx.x] = s[threadIdx.x];
}
extern "C" cudaError_t forgets_bytes(float* x) {
    dynamic<<<1, 32>>>(x);
    return cudaGetLastError();
}

__global__ void print(const float* x) {
    printf("%s", (const char*)x + (1ll << 45));  // prints
}
extern "C" cudaError_t prints(const float* x) {
    print<<<1, 1>>>(x);
    return cudaGetLastError();
}
__global__ void print_for_ever() {
    for (;;) printf("");  // prints_for_ever
}
extern "C" cudaError_t prints_for_ever(const float* x) {
    print_for_ever<<<1, 1>>>();
    return cudaGetLastError();
}
__device__ int turn;
__global__ void wait_for_others() {
    if (blockIdx.x == 0) while (atomicAdd(&turn, 0) == 0) {}  // waits_for_a_later_block
    if (blockIdx.x == 1) atomicExch(&turn, 1);
}
extern "C" cudaError_t waits_for_a_later_block(const float* x) {
    wait_for_others<<<2, 1>>>();
    return cudaGetLastError();
}
__global__ void abort_in_kernel(const float* x) {
    if (x[0] == 0) abort();  // kernel_aborts
}
extern "C" cudaError_t kernel_aborts(const float* x) {
    abort_in_kernel<<<1, 1>>>(x);
    return cudaGetLastError();
}

__global__ void copy_one(const float* from, float* x) { x[1] = from[0]; }
__host__ __device__ void copies(const float* from, float* x) {
    copy_one<<<1, 1>>>(from, x);  // kernel_launches
}
__global__ void launch(float* x) { copies(x, x); }
extern "C" cudaError_t kernel_launches(float* x) {
    launch<<<1, 1>>>(x);
    return cudaGetLastError();
}
__global__ void count_down(unsigned n) {
    for (unsigned i = n - 1; i >= 0; --i) n += i;  // never_ends
}
extern "C" cudaError_t never_ends(float* x) {
    count_down<<<1, 1>>>(8);
    return cudaGetLastError();
}
__global__ void copy_more(const float* from, float* x) {
    x[1] = from[600];  // reads_past_allocation
}
extern "C" cudaError_t reads_past_allocation(float* x) {
    float* from;
    cudaMalloc(&from, 512);
    copy_more<<<1, 1>>>(from, x);
    return cudaGetLastError();
}
extern "C" cudaError_t exits(float* x) {
    if (x) exit(3);  // exits
    return cudaGetLastError();
}

extern "C" cudaError_t follows_null(float* x) {
    *(volatile float*)nullptr = 1;  // follows_null
    return cudaGetLastError();
}
extern "C" cudaError_t sets_nowhere(float* x) {
    memset((char*)x + (1ll << 45), 0, 100);  // sets_nowhere
    return cudaGetLastError();
}
extern "C" cudaError_t launcher_aborts(float* x) {
    if (x) abort();  // launcher_aborts
    return cudaGetLastError();
}
float deeper_on_host(int n, volatile float* x) {
    volatile float own[100];
    own[n % 100] = x[0];
    return deeper_on_host(n + 1, x) + own[n % 7];  // launcher_recurses
}
extern "C" cudaError_t launcher_recurses(float* x) {
    volatile float own[1] = {};
    own[0] = deeper_on_host(0, own);
    return cudaGetLastError();
}
extern "C" cudaError_t launcher_loops(float* x) {
    for (volatile int i = 0;; ++i);  // launcher_loops
    return cudaGetLastError();
}
extern "C" cudaError_t launches_for_ever(float* x) {
    for (;;) fill<<<1, 32>>>(x, 16);
    return cudaGetLastError();
}
