// What launchers do wrong.
#include <cuda_runtime.h>

//: configured
//= (out[:64] == x[:64]).all()
__global__ void k(const float* x, float* out) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];  // @store
    out[threadIdx.x] = s[threadIdx.x];
}
RUN k<<<1, 64, 256, stream>>>(x, out);
//! refused: k<<<1, 1025, 256, stream>>>(x, out);
//! refused: k<<<1, 0, 256, stream>>>(x, out);
//! refused: k<<<0, 64, 256, stream>>>(x, out);
//! refused: k<<<dim3(1, 70000), 64, 256, stream>>>(x, out);
//! refused: k<<<dim3(1, 1, 65536), 64, 256, stream>>>(x, out);
//! refused: k<<<1, dim3(1, 1, 65), 256, stream>>>(x, out);
//! refused: k<<<1, dim3(32, 32, 2), 256, stream>>>(x, out);
//! refused: k<<<1, 64, 60000, stream>>>(x, out);
//! refused: k<<<64, 1 << 20, 256, stream>>>(x, out);
//! refused: k<<<n / 128, 64, 256, stream>>>(x, out);
//! out_of_bounds @store: k<<<1, 64>>>(x, out);
//! out_of_bounds @store: k<<<1, 64, 64, stream>>>(x, out);
//! refused: cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000); k<<<1, 64, 100001, stream>>>(x, out);
//! refused: cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 300000); k<<<1, 64, 256, stream>>>(x, out);
//! refused: k<<<1, 2000, 0, stream>>>(x, out); return cudaSuccess;
//! refused: k<<<-1, 64, 256, stream>>>(x, out);

//: host_code
//= (out[:32] == 3).all()
__global__ void k(const float* x, float* out, float value) { out[threadIdx.x] = value; }
RUN
    float host[32];
    for (int i = 0; i < 32; ++i) host[i] = i;
    cudaMemcpyAsync(out, host, sizeof(host), cudaMemcpyHostToDevice, stream);
    //! launcher_fault: *(volatile int*)nullptr = n;
    //! launcher_fault: volatile int zero = 0; host[3] = n / zero;
    k<<<1, 32, 0, stream>>>(x, out, host[3]);
END
