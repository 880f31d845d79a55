// The part of the CUDA runtime library that launchers use. Streams have no effect: every call has
// completed when it returns.
#pragma once

#include <stdlib.h>
#include <string.h>

#include "launch.h"

#define EMULATOR_ERRORS(each)                                                                 \
    each(cudaSuccess, 0)                                                                      \
    each(cudaErrorInvalidValue, 1)                                                            \
    each(cudaErrorMemoryAllocation, 2)                                                        \
    each(cudaErrorInvalidConfiguration, 9)                                                    \
    each(cudaErrorInvalidDevicePointer, 17)                                                   \
    each(cudaErrorNotReady, 600)                                                              \
    each(cudaErrorIllegalAddress, 700)                                                        \
    each(cudaErrorLaunchTimeout, 702)                                                         \
    each(cudaErrorAssert, 710)                                                                \
    each(cudaErrorMisalignedAddress, 716)                                                     \
    each(cudaErrorLaunchFailure, 719)                                                         \
    each(cudaErrorCooperativeLaunchTooLarge, 720)                                             \
    each(cudaErrorNotSupported, 801)                                                          \
    each(cudaErrorInvalidClusterSize, 912)                                                    \
    each(cudaErrorUnknown, 999)
#define EMULATOR_NUMBERED(name, number, ...) name = number,
typedef enum cudaError { EMULATOR_ERRORS(EMULATOR_NUMBERED) } cudaError_t;

typedef enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
} cudaMemcpyKind;

typedef enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
} cudaFuncAttribute;

// Of an H100, except for the number of its SMs: attribute, its number, its value.
#define EMULATOR_ATTRIBUTES(each)                                                             \
    each(cudaDevAttrMaxThreadsPerBlock, 1, 1024)                                              \
    each(cudaDevAttrMaxSharedMemoryPerBlock, 8, 48 * 1024)                                    \
    each(cudaDevAttrWarpSize, 10, 32)                                                         \
    each(cudaDevAttrMultiProcessorCount, 16, emulator_num_cores())                            \
    each(cudaDevAttrMaxThreadsPerMultiProcessor, 39, 2048)                                    \
    each(cudaDevAttrComputeCapabilityMajor, 75, 9)                                            \
    each(cudaDevAttrComputeCapabilityMinor, 76, 0)                                            \
    each(cudaDevAttrMaxSharedMemoryPerMultiprocessor, 81, 228 * 1024)                         \
    each(cudaDevAttrCooperativeLaunch, 95, 1)                                                 \
    each(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97, 227 * 1024)
typedef enum cudaDeviceAttr { EMULATOR_ATTRIBUTES(EMULATOR_NUMBERED) } cudaDeviceAttr;
#undef EMULATOR_NUMBERED

struct cudaDeviceProp {
    char name[256];
    size_t sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor, multiProcessorCount;
    int major, minor;
    size_t totalGlobalMem;
    int l2CacheSize, clockRate, memoryClockRate, memoryBusWidth;
};

inline cudaError_t cudaGetLastError() { return (cudaError_t)emulator_get_last_error(); }
inline cudaError_t cudaPeekAtLastError() { return (cudaError_t)emulator_peek_last_error(); }
inline cudaError_t cudaDeviceSynchronize() { return cudaPeekAtLastError(); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaPeekAtLastError(); }

inline const char* cudaGetErrorName(cudaError_t error) {
#define EMULATOR_NAMED(name, number) case name: return #name;
    switch (error) { EMULATOR_ERRORS(EMULATOR_NAMED) }
#undef EMULATOR_NAMED
    return "unrecognized error code";
}
inline const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
#define EMULATOR_VALUE(name, number, known) case name: return *value = known, cudaSuccess;
    switch (attribute) { EMULATOR_ATTRIBUTES(EMULATOR_VALUE) }
#undef EMULATOR_VALUE
    return cudaErrorInvalidValue;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    const int cores = emulator_num_cores();
    *properties = {"emulator", 48 * 1024, 227 * 1024, 228 * 1024, 32, 1024, 2048, cores, 9, 0,
                   (size_t)1 << 32, 50 << 20, 1980000, 3201000, 6144};
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }

// A kernel is identified by its name in the source text, as in a launch.
#define cudaFuncSetAttribute(...) emulator::set_attribute(EMULATOR_NAME(__VA_ARGS__), __VA_ARGS__)

namespace emulator {
template <class Kernel>  // inlined, so that a kernel is not compiled just to be named here
EMULATOR_INLINE cudaError_t set_attribute(const char* text, Kernel*, cudaFuncAttribute attribute,
                                          int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    return (cudaError_t)emulator_allow_shared(&this_file, text, (size_t)value);
}
}  // namespace emulator

// As many as 2048 threads and 228 KB of shared memory allow; registers are not modeled.
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* count, Kernel, int threads,
                                                          size_t shared_bytes) {
    if (threads < 1 || threads > 1024) return cudaErrorInvalidValue;
    const size_t by_threads = 2048 / threads, by_shared = 228 * 1024 / (shared_bytes + 1024);
    *count = (int)(by_threads < by_shared ? by_threads : by_shared);
    return cudaSuccess;
}

// As many threads as a thread block may have, fewer if its shared memory would not fit.
template <class Kernel, class Bytes>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* threads, Kernel kernel,
                                                           Bytes shared_bytes, int most = 0) {
    if (most < 0) return cudaErrorInvalidValue;
    for (*threads = most && most < 1024 ? most : 1024; *threads > 0; *threads -= 32) {
        const size_t bytes = shared_bytes(*threads);
        if (bytes > 227 * 1024) continue;
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(grid, kernel, *threads, bytes);
        *grid *= emulator_num_cores();
        return cudaSuccess;
    }
    return cudaErrorInvalidConfiguration;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* threads, Kernel kernel,
                                               size_t shared_bytes = 0, int most = 0) {
    auto bytes = [=](int) { return shared_bytes; };
    return cudaOccupancyMaxPotentialBlockSizeVariableSMem(grid, threads, kernel, bytes, most);
}

template <class T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
    return (cudaError_t)emulator_allocate((void**)pointer, bytes, false);
}
template <class T>
cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t) {
    return cudaMalloc(pointer, bytes);
}
inline cudaError_t cudaFree(void* pointer) { return (cudaError_t)emulator_free(pointer); }
inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }

template <class T>
cudaError_t cudaMallocManaged(T** pointer, size_t bytes, unsigned = 1) {
    return (cudaError_t)emulator_allocate((void**)pointer, bytes, true);
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes, unsigned = 0) {
    return cudaMallocManaged(pointer, bytes);
}
template <class T>
cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned) {
    return cudaMallocManaged(pointer, bytes);
}
template <class T>
cudaError_t cudaHostGetDevicePointer(T** pointer, void* on_host, unsigned) {
    return *pointer = (T*)on_host, cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return (cudaError_t)emulator_copy(to, from, bytes, kind);
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr) {
    return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                size_t width, size_t height, cudaMemcpyKind kind) {
    for (size_t row = 0; row < height; ++row) {
        const char* source = (const char*)from + row * from_pitch;
        if (auto error = cudaMemcpy((char*)to + row * to_pitch, source, width, kind)) return error;
    }
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    return (cudaError_t)emulator_set(to, value, bytes);
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr) {
    return cudaMemset(to, value, bytes);
}

// A symbol is a `__constant__` or `__device__` variable: here, any variable of the file.
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice) {
    if (offset + bytes > sizeof(T)) return cudaErrorInvalidValue;
    return (cudaError_t)emulator_copy((char*)&symbol + offset, from, bytes, cudaMemcpyDefault);
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                                    cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                    cudaStream_t = nullptr) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <class T>
cudaError_t cudaGetSymbolAddress(void** pointer, T& symbol) {
    return *pointer = (void*)&symbol, cudaSuccess;
}
template <class T>
cudaError_t cudaGetSymbolSize(size_t* bytes, T&) {
    return *bytes = sizeof(T), cudaSuccess;
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, T& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost) {
    if (offset + bytes > sizeof(T)) return cudaErrorInvalidValue;
    return (cudaError_t)emulator_copy(to, (char*)&symbol + offset, bytes, cudaMemcpyDefault);
}

// A launch as a function call. The rewriter has removed the cast of the kernel to `void*`.
#define cudaLaunchKernel(...) emulator::launch_kernel<false>(EMULATOR_NAME(__VA_ARGS__), __VA_ARGS__)
#define cudaLaunchCooperativeKernel(...)                                                      \
    emulator::launch_kernel<true>(EMULATOR_NAME(__VA_ARGS__), __VA_ARGS__)

namespace emulator {
template <class... Parameters, size_t... Index>
void launch_with(const Configuration& configured, void (*kernel)(Parameters...), void** arguments,
                 std::index_sequence<Index...>) {
    Configuration(configured).run(kernel, *(std::decay_t<Parameters>*)arguments[Index]...);
}
template <bool cooperative, class... Parameters>
cudaError_t launch_kernel(const char* name, void (*kernel)(Parameters...), dim3 grid,
                          dim3 thread_block, void** arguments, size_t shared_bytes = 0,
                          cudaStream_t stream = nullptr) {
    auto configured = configure(name, grid, thread_block, shared_bytes, stream);
    configured.launch.cooperative = cooperative;
    launch_with(configured, kernel, arguments, std::index_sequence_for<Parameters...>());
    return cudaPeekAtLastError();
}
}  // namespace emulator

typedef enum cudaLaunchAttributeID {
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeClusterDimension = 4,
} cudaLaunchAttributeID;
typedef union cudaLaunchAttributeValue {
    struct {
        unsigned int x, y, z;
    } clusterDim;
    int cooperative;
} cudaLaunchAttributeValue;
typedef struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
} cudaLaunchAttribute;
typedef struct cudaLaunchConfig_t {
    dim3 gridDim_of_host, blockDim_of_host;  // as the rewriter calls them
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned int numAttrs;
} cudaLaunchConfig_t;

#define cudaLaunchKernelEx(...) emulator::launch_kernel_ex(EMULATOR_NAME(__VA_ARGS__), __VA_ARGS__)

namespace emulator {
template <class... Parameters, class... Arguments>
inline __attribute__((always_inline)) cudaError_t launch_kernel_ex(
    const char* text, const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
    Arguments&&... arguments) {
    const char* name = strchr(text, ',') + 1;  // after the configuration
    auto configured = configure(name, config->gridDim_of_host, config->blockDim_of_host,
                                config->dynamicSmemBytes);
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const cudaLaunchAttribute& one = config->attrs[i];
        const auto& extent = one.val.clusterDim;
        if (one.id == cudaLaunchAttributeCooperative) {
            configured.launch.cooperative = one.val.cooperative != 0;
        } else {
            configured.launch.cluster = {extent.x, extent.y, extent.z};
            configured.launch.has_cluster = true;
        }
    }
    // What the kernel's parameters convert to by themselves, as for nvcc; no cast.
    [&](Parameters... given) { configured.run(kernel, given...); }(
        std::forward<Arguments>(arguments)...);
    return cudaPeekAtLastError();
}
}  // namespace emulator

// Streams and events: the work before an event is done when it is recorded.
typedef struct CUevent_st {
    long long at;  // nanoseconds
}* cudaEvent_t;
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaMemAttachGlobal = 1, cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };

inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = nullptr, cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
    return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) {
    return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new CUevent_st{}, cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    return cudaEventCreate(event);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr) {
    return event->at = emulator_nanoseconds(), cudaPeekAtLastError();
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaPeekAtLastError(); }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaPeekAtLastError(); }
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    return *milliseconds = (float)((to->at - from->at) * 1e-6), cudaSuccess;
}
