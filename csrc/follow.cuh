// Programmatic dependent launch (sm_90 on): a kernel is launched while the kernel before it still
// runs. Its thread blocks become resident as soon as there is room and then wait, so the launch
// overhead overlaps with the first kernel. On older GPUs it is an ordinary launch.
//
// A kernel waits for the kernel before it. If that one has waited too, all earlier kernels have
// finished as well. So every thread block of a kernel that is launched behind another waits before
// it writes, and before it reads another kernel's results. One exception: it may read the results
// of an earlier kernel before it waits, if a kernel in between let its successor begin only after
// its own wait. It may also read the starts and lengths of sequences before it waits: they
// come from the host, or from a kernel that never lets its successor begin early.
#pragma once

#include <cuda_runtime.h>

// Called in the first kernel: from here on the next kernel may be launched.
__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Called in the second kernel: wait until the first has finished and its writes are visible.
__device__ __forceinline__ void wait_for_last() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

#ifndef YAIE_EMULATOR
// Whether the code of a kernel that this card runs has the two calls above. It has not if it was
// compiled for an older card: a newer one may run PTX of sm_80. A file that is compiled for no older
// card skips the query, which takes the host time at every launch.
inline bool can_follow(const void* kernel) {
    constexpr int ARCHITECTURES[] = {__CUDA_ARCH_LIST__};  // ascending
    if (ARCHITECTURES[0] >= 900) return true;
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}
#endif

// Launch a kernel that calls wait_for_last() after one that calls let_next_begin().
template <typename... Parameters, typename... Arguments>
cudaError_t launch_behind(void (*kernel)(Parameters...), dim3 grid, dim3 threads, size_t bytes,
                          cudaStream_t stream, Arguments... arguments) {
#ifndef YAIE_EMULATOR
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = threads;
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = can_follow((const void*)kernel) ? 1 : 0;
    cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
    return error == cudaSuccess ? error : cudaGetLastError();  // so that no later call returns it
#else  // the emulator identifies a kernel by the name in its launch
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    kernel<<<grid, threads, bytes, stream>>>(arguments...);
    return cudaGetLastError();
#endif
}
