// A kernel that is launched while the one before it still runs (programmatic dependent launch,
// sm_90 on): its thread blocks take what room there is, and wait. What a launch takes is then over
// when the first kernel is. Where that is not to be had it is an ordinary launch.
#pragma once

#include <cuda_runtime.h>

// In the first kernel: from here on the next one may begin.
__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// In the second: wait until all of the first is done, and what it wrote is to be seen.
__device__ __forceinline__ void wait_for_last() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

// Launch a kernel that calls wait_for_last() behind one that calls let_next_begin().
template <typename... Parameters>
cudaError_t launch_behind(void (*kernel)(Parameters...), dim3 grid, int threads, size_t bytes,
                          cudaStream_t stream, Parameters... arguments) {
#ifdef __CUDACC__
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = major >= 9 ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
#else  // the emulator knows a kernel by the name under which it is launched
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    kernel<<<grid, threads, bytes, stream>>>(arguments...);
    return cudaGetLastError();
#endif
}
