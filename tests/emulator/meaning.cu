// Arithmetic that nvcc compiles to instructions that saturate, where C++ leaves the result undefined.
#include <cuda_fp16.h>

template <typename From>
__device__ void convert(From x, long long* out) {
    out[0] = (int)x;
    out[1] = static_cast<unsigned>(x);
    out[2] = (long long)x;
    out[3] = (long long)(unsigned long long)(x);
    out[4] = (short)x;
    out[5] = (unsigned char)x;
    out[6] = int(x * 1) - 1;
    out[7] = (int)-x / 2;
}
// <<<1, n, 0>>>
__global__ void casts(const float* x, const double* y, long long* out, long long* wide, int n) {
    convert(x[threadIdx.x], out + threadIdx.x * 8);
    convert(y[threadIdx.x], wide + threadIdx.x * 8);
}

// <<<1, n, 0>>>
__global__ void rounded(const float* x, const double* y, const __half* h, long long* out, int n) {
    int i = threadIdx.x;
    out += i * 16;
    out[0] = __float2int_rn(x[i]);
    out[1] = __float2int_rz(x[i]);
    out[2] = __float2int_rd(x[i]);
    out[3] = __float2int_ru(x[i]);
    out[4] = __float2uint_rn(x[i]);
    out[5] = __float2uint_rz(x[i]);
    out[6] = __float2ll_rd(x[i]);
    out[7] = (long long)__float2ull_ru(x[i]);
    out[8] = __double2int_rn(y[i]);
    out[9] = __double2uint_rz(y[i]);
    out[10] = __double2ll_rn(y[i]);
    out[11] = (long long)__double2ull_rd(y[i]);
    out[12] = __half2int_rn(h[i]);
    out[13] = (int)h[i];
    out[14] = (unsigned)(float)h[i];
    out[15] = 0;
}

// <<<1, 1, 0>>>
__global__ void macros(int* out) {
#if defined(__CUDACC__) && defined(__CUDA_ARCH__)
    out[0] = __CUDA_ARCH__;
#endif
    out[1] = CUDART_VERSION >= 12000;
}
