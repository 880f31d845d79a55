// Out of bounds, misaligned, unwritten, and arithmetic that C++ leaves undefined.
#include <assert.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

//: elements
//= (out == x).all()
__global__ void k(const float* x, float* out, int n) {  // @kernel
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];
    //! out_of_bounds: out[i] = x[i];
    //! out_of_bounds: if (i <= n) out[i] = x[i];
    //! out_of_bounds: if (i <= n) out[i % n] = x[i];
    //! out_of_bounds: if (i < n) out[i] = x[i - 1];
    //! out_of_bounds: if (i < n) out[i] = x[i * 100000000ll];
    //! out_of_bounds: if (i < n) out[i] = x[i + (1 << 24)];
    //! out_of_bounds: if (i < n) atomicAdd(&out[i * 2], x[i]);
    //! out_of_bounds: if (i < n) out[i] = ((const double*)x)[i];
    //! out_of_bounds: if (i < n) out[i] = ((const volatile float*)x)[i + 1];
    //! out_of_bounds: if (i < n) ((char*)(out + 1))[i * 4] = 1;
    //! out_of_bounds: if (i < n) out[i] = x[n - 1 - i - blockIdx.x];
    //! out_of_bounds: if (i < n) out[i] = *(i ? x + i : (const float*)nullptr);
    //! misaligned: if (i < n - 1) out[i] = *(const float*)((const char*)(x + i) + 2);
    //! misaligned: if (i < n) ((long long*)(out + 1))[i / 4] = 0;
    //! trap: if (i < n) out[i] = x[i]; if (i == 70) __trap();
    //! assertion: assert(i < n); if (i < n) out[i] = x[i];
    //! stack_overflow @kernel: volatile float own[100000]; for (int j = 0; j < 100000; ++j) own[j] = x[0]; out[0] = own[n];
}
RUN k<<<(n + 63) / 64, 64, 0, stream>>>(x, out, n);

//: vectors
//= (out[:24] == x[:96].view(24, 4).sum(1)).all()
__global__ void k(const float* x, float* out, int n) {
    int i = threadIdx.x;
    if (i < n / 4) {
        //! out_of_bounds @load: if (i < (n + 3) / 4) {
        float4 v = ((const float4*)x)[i];  // @load
        //! misaligned: float4 v = *(const float4*)(x + 1 + 4 * i);
        //! misaligned: float2 h = ((const float2*)(x + 1))[i]; float4 v = {h.x, h.y, h.x, h.y};
        //! out_of_bounds: float4 v = ((const float4*)x)[i + 1];
        out[i] = v.x + v.y + v.z + v.w;
        //! misaligned: *(double*)(out + 2 * i + 1) = v.x;
        //! misaligned: *(int2*)((char*)out + 4 + 8 * i) = *(const int2*)x;
    }
}
RUN k<<<1, 32, 0, stream>>>(x, out, n);
//! misaligned @load: k<<<1, 32, 0, stream>>>(x + 2, out, n - 4);

//: structs
//= (out[:48] == x[:96].view(48, 2).prod(1)).all()
struct Pair { float value, weight; };
__device__ float product(Pair p) { return p.value * p.weight; }
__global__ void k(const Pair* pairs, float* out, int n) {
    int i = threadIdx.x;
    if (i < n / 2) out[i] = product(pairs[i]);
    //! out_of_bounds: if (i < n / 2) out[i] = product(pairs[i + 1]);
    //! out_of_bounds: out[i] = product(pairs[i]);
    //! misaligned: if (i < n / 2) out[i] = *(const double*)&pairs[i].weight;
}
RUN k<<<1, 64, 0, stream>>>((const Pair*)x, out, n);

//: scratch
//= (out[:32] == x[:32]).all()
__global__ void k(const float* x, float* out, float* scratch, const float* factor) {
    int t = threadIdx.x;
    scratch[t] = x[t];  // @scratch
    //! race|out_of_bounds|uninitialized: scratch[t * 2] = x[t];
    //! race|out_of_bounds|uninitialized: scratch[t - 1] = x[t];
    out[t] = scratch[t] * *factor;  // @out
}
RUN
    float *scratch, *factor, one = 1;
    if (cudaMalloc(&scratch, 32 * sizeof(float)) != cudaSuccess) return cudaErrorMemoryAllocation;
    //! out_of_bounds @scratch: cudaMalloc(&scratch, 31 * sizeof(float));
    //! out_of_bounds @scratch: cudaMalloc(&scratch, 32);
    cudaMalloc(&factor, sizeof(float));
    cudaMemcpyAsync(factor, &one, sizeof(float), cudaMemcpyHostToDevice, stream);
    k<<<1, 32, 0, stream>>>(x, out, scratch, factor);
    //! out_of_bounds @out: k<<<1, 32, 0, stream>>>(x, out, scratch, &one);
    //! out_of_bounds @out: k<<<1, 32, 0, stream>>>(x, out, scratch, nullptr);
    //! out_of_bounds @scratch: k<<<1, 32, 0, stream>>>(x, out, nullptr, factor);
    //! out_of_bounds @scratch: float own[32]; k<<<1, 32, 0, stream>>>(x, out, own, factor);
    cudaFree(scratch);
    cudaFree(factor);
END

//: arithmetic
//= (ints[:32] == torch.arange(1, 33)).all()
__global__ void k(const float* x, int* out, int zero) {
    int t = threadIdx.x;
    int value = (int)x[t];
    //! conversion: float large = x[t] * 1e9f; int value = large;
    //! conversion: int value = sqrtf(zero - x[t]);
    out[t] = value;
    //! division: out[t] = value / zero;
    //! division: out[t] = value % (t - 5);
    //! shift: out[t] = value << t + 1;
    //! shift: out[t] = value >> 32 + zero;
    //! shift: out[t] = 1u << value - 2;
    //! shift: out[t] = 1ull << 2 * value;
}
RUN k<<<1, 32, 0, stream>>>(x, (int*)out, 0);

//: recursion
//= (out[:32] == 55).all()
__device__ float sum(const float* x, int n) {  // @sum
    float own[4] = {x[n]};  // @sum
    return n ? own[0] + sum(x, n - 1) : 1;
    //! stack_overflow @sum: return n < 96 ? own[0] + sum(x, n ^ 1) : 1;
}
__global__ void k(const float* x, float* out) { out[threadIdx.x] = sum(x, 9); }
RUN k<<<1, 32, 0, stream>>>(x, out);

//: loops
//= (out[:32] == 496).all()
__global__ void k(const float* x, float* out, int n) {
    float sum = 0;
    for (int i = n - 1; i >= 0; --i) sum += x[i] - 1;
    //! time_limit: for (int i = n - 1; i >= 0; i += 0) sum += x[i] - 1;
    //! time_limit: for (int i = 1; i != n; i *= 3) sum += x[(unsigned)i % n];
    //! time_limit: while (sum >= 0) sum += x[0];
    //! out_of_bounds: for (int i = n - 1; i != 1; i -= 2) sum += x[i - 1] - 1, i += i % 2;
    out[threadIdx.x] = sum;  // @out
}
RUN k<<<1, 32, 0, stream>>>(x, out, 32);
//! out_of_bounds @out: k<<<1, 128, 0, stream>>>(x, out, 32);
