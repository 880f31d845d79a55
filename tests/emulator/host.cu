// Host code as CUDA programs write it: variables with the names of built-in ones, launches in every
// spelling, and the functions of the runtime library that launchers use.
#include <cuda_runtime.h>

__constant__ float factor = 1.0f;
__device__ int counter;

template <int N, bool NEGATED>
__global__ void numbers(float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) out[i] = NEGATED ? -i : i;
}
__global__ void __maxnreg__(32) scale(float* out, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __builtin_assume(n > 0);
    if (i < n) out[i] *= by * factor;
}
__global__ __block_size__((32, 1, 1)) void ticks(float* out) {
    long long before = clock64();
    __nanosleep(100);
    out[blockIdx.x * 32 + threadIdx.x] = clock64() >= before && clock() >= 0 ? gridDim.x : -1.0f;
    if (threadIdx.x == 0) atomicAdd(&counter, 1);
}
__global__ void through_shared_address(int* out) {
    extern __shared__ int dynamic[];
    __shared__ int fixed[64];
    unsigned first = (unsigned)__cvta_generic_to_shared(&dynamic[threadIdx.x]);
    unsigned second = (unsigned)__cvta_generic_to_shared(&fixed[threadIdx.x]);
    *(int*)__cvta_shared_to_generic(first) = threadIdx.x;
    *(int*)__cvta_shared_to_generic(second + 4 * 32) = 100 + threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = dynamic[31 - threadIdx.x];
    out[32 + threadIdx.x] = fixed[63 - threadIdx.x];
}

__global__ void count_or_not(const float* maybe, int* out, const void* also) {
    out[threadIdx.x] = (maybe ? 1 : 10) + (also ? 1 : 10);
}

static cudaError_t doubled(float* out, int n, dim3 gridDim, const dim3& blockDim) {
    float by = 2.0f;
    void* arguments[] = {&out, &n, &by};
    return cudaLaunchKernel((const void*)scale, gridDim, blockDim, arguments, 0, 0);
}

extern "C" cudaError_t run_named_like_built_in(float* out, int n, cudaStream_t stream) {
    const dim3 blockDim(64), gridDim((n + blockDim.x - 1) / blockDim.x);
    numbers<(1000 >> 1), (2 > 1)> /* all <of them> */ <<<gridDim, blockDim, 0, stream>>>(out);
    return doubled(out, n, gridDim, blockDim);
}

extern "C" cudaError_t run_from_a_symbol(float* out, int n, cudaStream_t stream) {
    int threads, grid;
    void* address;
    size_t bytes;
    float half = 0.5f, *staged;
    cudaGetSymbolAddress(&address, factor);
    cudaGetSymbolSize(&bytes, factor);
    cudaMallocHost(&staged, n * sizeof(float));
    for (int i = 0; i < n; ++i) staged[i] = (float)i;
    cudaMemcpyAsync(out, staged, n * sizeof(float), cudaMemcpyHostToDevice, stream);
    cudaMemcpy(address, &half, bytes, cudaMemcpyHostToDevice);
    cudaOccupancyMaxPotentialBlockSize(&grid, &threads, scale, 0, 200);
    auto blockDim = threads;
    scale  // every thread has one element
        <<<(n + blockDim - 1) / blockDim, blockDim, 0, stream>>>(out, n, 3.0f);
    half = 1.0f;
    cudaMemcpyToSymbol(factor, &half, sizeof(half));
    return cudaFreeHost(staged);
}

extern "C" cudaError_t run_timed(float* out, int* launches, cudaStream_t) {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float milliseconds = -1.0f;
    int zero = 0;
    cudaStreamCreate(&stream);
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaMemcpyToSymbol(counter, &zero, sizeof(zero));
    cudaEventRecord(begin, stream);
    for (int gridDim = 1; gridDim < 4; ++gridDim) ticks<<<gridDim, 32, 0, stream>>>(out);
    cudaEventRecord(end, stream);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&milliseconds, begin, end);
    cudaMemcpyFromSymbol(launches, counter, sizeof(int));
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaStreamDestroy(stream);
    return milliseconds > 0 ? cudaGetLastError() : cudaErrorLaunchFailure;
}

extern "C" cudaError_t run_through_shared_address(int* out, cudaStream_t stream) {
    through_shared_address<<<1, 32, 32 * sizeof(int), stream>>>(out);
    return cudaGetLastError();
}

extern "C" cudaError_t run_without_pointers(int* out, cudaStream_t stream) {
    count_or_not<<<1, 4, 0, stream>>>(NULL, out, NULL);
    return cudaGetLastError();
}

extern "C" cudaError_t run_copy_of_rows(float* to, const float* from, cudaStream_t stream) {
    return cudaMemcpy2D(to, 5 * sizeof(float), from, 7 * sizeof(float), 3 * sizeof(float), 4,
                        cudaMemcpyDeviceToDevice);
}
