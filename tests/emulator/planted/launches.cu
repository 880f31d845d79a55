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

//: bounded
//= (out[:64] == x[:64] + 1).all()
constexpr int MOST = 64;
template <int THREADS, typename T>
__global__ void __launch_bounds__(THREADS * 2, 1) bounded(const T* x, T* out, int n) {
    __shared__ float own[8192];
    extern __shared__ float s[];
    own[threadIdx.x] = x[threadIdx.x % n];
    s[threadIdx.x % 64] = own[threadIdx.x];
    out[threadIdx.x % n] = s[threadIdx.x % 64] + 1;
}
RUN
    cudaError_t error = cudaSuccess;
    bounded<MOST / 2, float><<<1, MOST, 16384, stream>>>(x, out, n);
    //! refused: bounded<MOST / 2, float><<<1, MOST + 1, 16384, stream>>>(x, out, n);
    //! refused: bounded<16, float><<<1, MOST, 16384, stream>>>(x, out, n); cudaGetLastError(); return cudaSuccess;
    //! refused: bounded<MOST / 2, float><<<1, dim3(8, 8, 2), 16384, stream>>>(x, out, n); return error;
    //! refused: bounded<MOST / 2, float><<<1, MOST, 16388, stream>>>(x, out, n);
    //! refused: bounded<MOST / 2, float><<<1, 1025, 16384, stream>>>(x, out, n); error = cudaGetLastError(); return cudaSuccess;
    //! refused: cudaFuncSetAttribute(bounded<MOST / 2, float>, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024);
    if (error != cudaSuccess) return error;
END

//: second_choice
//= (out[:64] == x[:64]).all()
constexpr int MOST = 64;
__global__ void __launch_bounds__(MOST) k(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
RUN
    k<<<1, 128, 0, stream>>>(x, out);
    if (cudaGetLastError() != cudaSuccess) k<<<1, 64, 0, stream>>>(x, out);
END

//: memory
//= (out[:64] == 2 * x[:64] + 1).all()
__global__ void add(const float* x, const float* more, float* out) {
    out[threadIdx.x] = x[threadIdx.x] + more[threadIdx.x];  // @add
}
__global__ void count(const float* x, float* sums) { atomicAdd(&sums[threadIdx.x / 2], x[0]); }  // @count
RUN
    static float* kept = nullptr;  // by later calls too
    float *scratch, *pinned, host[64];
    if (!kept) cudaMalloc(&kept, 256);
    cudaMalloc(&scratch, 512);
    cudaMallocHost(&pinned, 256);
    for (int i = 0; i < 64; ++i) pinned[i] = host[i] = 1;
    cudaMemcpyAsync(scratch, host, 256, cudaMemcpyHostToDevice, stream);
    //! uninitialized @add: ;
    //! uninitialized @add: cudaMemcpyAsync(scratch, host, 252, cudaMemcpyHostToDevice, stream);
    //! uninitialized @add: cudaMemcpyAsync(scratch + 1, host, 256, cudaMemcpyHostToDevice, stream);
    //! launcher_fault: for (int i = 0; i < 64; ++i) scratch[i] = host[i];
    //! launcher_fault: host[0] = x[0]; cudaMemcpyAsync(scratch, host, 256, cudaMemcpyHostToDevice, stream);
    //! launcher_fault: if (out[5] == 0) cudaMemcpy(scratch, host, 256, cudaMemcpyHostToDevice);
    //! refused: cudaMemcpyAsync(scratch + 65, host, 256, cudaMemcpyHostToDevice, stream); cudaGetLastError(); return cudaSuccess;
    //! refused: cudaMemset(out + 90, 0, 256); return cudaSuccess;
    //! refused: cudaFree(host); return cudaSuccess;
    //! refused: cudaMemcpyAsync(scratch, x, 256, cudaMemcpyHostToDevice, stream); return cudaSuccess;
    //! refused: cudaMemcpy(scratch, host, 256, cudaMemcpyDeviceToHost); return cudaSuccess;
    //! out_of_bounds @add: cudaFree(scratch);
    add<<<1, 64, 0, stream>>>(x, scratch, scratch + 64);
    cudaMemsetAsync(kept, 0, 256, stream);
    //! uninitialized @count: cudaFree(kept); cudaMalloc(&kept, 256);
    count<<<1, 64, 0, stream>>>(x, kept);
    cudaMemcpy(kept, scratch + 64, 256, cudaMemcpyDeviceToDevice);
    //! refused: cudaMemcpy(kept, scratch + 65, 256, cudaMemcpyDeviceToDevice); return cudaSuccess;
    cudaFree(scratch);
    //! refused: cudaFree(scratch); cudaFree(scratch); return cudaSuccess;
    add<<<1, 64, 0, stream>>>(x, kept, out);
    //! out_of_bounds @add: add<<<1, 64, 0, stream>>>(x, scratch, out);
    cudaFreeHost(pinned);
END
