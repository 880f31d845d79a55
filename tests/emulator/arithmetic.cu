// Arithmetic that kernels use beside that of float: eight-bit floating point, pairs of halves, bits. The
// configuration of each launch stands above its kernel: `emulated.with_launchers` writes the launchers.
#include <cuda_fp8.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <math_constants.h>

// <<<(n + 255) / 256, 256, 0>>>
__global__ void to_fp8(const float* x, unsigned char* e4m3, unsigned char* open, unsigned char* e5m2,
                       int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    e4m3[i] = __nv_fp8_e4m3(x[i]).__x;
    open[i] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E4M3);
    e5m2[i] = __nv_fp8_e5m2(x[i]).__x;
}

// <<<(n + 255) / 256, 256, 0>>>
__global__ void from_fp8(const __nv_fp8_e4m3* x, const __nv_fp8_e5m2* y, float* out, __half* half_out,
                         float* other, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = float(x[i]);
    half_out[i] = __half(x[i]);
    other[i] = float(y[i]);
}

// Four at a time, as a cache in eight bits is read and written.
// <<<1, 32, 0>>>
__global__ void four_fp8(const float4* x, __nv_fp8x4_e4m3* packed, float4* out, __half2* halves) {
    int i = threadIdx.x;
    packed[i] = __nv_fp8x4_e4m3(x[i]);
    out[i] = float4(packed[i]);
    __nv_fp8x2_e4m3 two(make_float2(x[i].x, x[i].y));
    halves[i] = __half2(two);
}

// <<<(n + 255) / 256, 256, 0>>>
__global__ void pairs(const __half2* a, const __half2* b, __half2* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half2 sum = __hadd2(__ldg(a + i), __ldg(b + i));
    sum -= __half2half2(__float2half(1.0f));
    out[i] = __hmax2(sum, __hneg2(sum));
    out[n + i] = __shfl_xor_sync(__activemask(), sum, 1);
    out[2 * n + i] = __hfma2(a[i], b[i], __lowhigh2highlow(a[i]));
    out[3 * n + i] = __halves2half2(__low2half(sum), __high2half(a[i]));
    out[4 * n + i] = __lows2half2(a[i], b[i]);
}

// <<<(n + 255) / 256, 256, 0>>>
__global__ void brain_pairs(const __nv_bfloat162* a, const __nv_bfloat162* b, __nv_bfloat162* out,
                            int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 x = __bfloat1622float2(a[i]), y = __bfloat1622float2(b[i]);
    out[i] = __float22bfloat162_rn(make_float2(x.x * y.x, x.y * y.y));
    out[n + i] = __hmul2(a[i], b[i]);
    out[2 * n + i] = __shfl_xor_sync(__activemask(), a[i], 1);
}

// <<<1, 1, 0>>>
__global__ void bits(int* out) {
    out[0] = __dp4a(0x01ff7f80, 0x02030405, 7);  // 1·2 + (-1)·3 + 127·4 + (-128)·5 + 7
    out[1] = __funnelshift_l(0x80000001u, 0x00000002u, 1);
    out[2] = __funnelshift_r(0x80000001u, 0x00000003u, 4);
    out[3] = __float_as_int(CUDART_INF_F);
    out[4] = CUDART_NAN_F != CUDART_NAN_F;
}

// Sixteen, eight and four bytes, and four of which the last two become zero.
// <<<1, 32, 0>>>
__global__ void copies(const float* x, float* out) {
    __shared__ alignas(16) float s[12];
    if (threadIdx.x == 0) {
        __pipeline_memcpy_async(s, x, 16);
        __pipeline_memcpy_async(s + 4, x + 4, 8);
        __pipeline_memcpy_async(s + 6, x + 6, 4);
        __pipeline_memcpy_async(s + 7, x + 7, 4, 4);
        __pipeline_memcpy_async(s + 8, x + 8, 16, 8);
        __pipeline_commit();
        __pipeline_wait_prior(0);
    }
    __syncthreads();
    if (threadIdx.x < 12) out[threadIdx.x] = s[threadIdx.x];
}
