// Replaces NVIDIA's cuda_runtime.h: CUDA C++ for an ordinary C++ compiler.
#pragma once

#define _GLIBCXX_BITS_SPECFUN_H  // <cmath> without Bessel and similar functions compiles in half the time
#include <assert.h>
#include <float.h>
#include <stdint.h>
#include <stdio.h>

#include <bits/stl_algobase.h>  // std::min and max, which NVIDIA's headers bring along
#include <cstdio>
#include <ctime>

#include "emulator/api.h"
#include "emulator/atomics.h"
#include "emulator/host.h"
#include "emulator/launch.h"
#include "emulator/math.h"
#include "emulator/vector_types.h"
#include "emulator/warp.h"

// The emulator has the instructions of sm_80. Code for one side only is compiled as the device's.
#define YAIE_EMULATOR 1
#define __CUDACC__ 1
#define __CUDA_ARCH__ 800
#define CUDART_VERSION 13000

#define __global__ __attribute__((noinline))  // so that each instruction has a line
#define __device__
#define __host__
#define __constant__
#define __managed__
// One copy per core; emulator::Raw finds that of the running thread block of a cluster.
#define __shared__ static __thread __attribute__((used))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __block_size__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __builtin_assume(condition) ((void)0)
#define __grid_constant__

template <class T> EMULATOR_INLINE T __ldg(const T* p) { return *p; }
template <class T> EMULATOR_INLINE T __ldca(const T* p) { return *p; }
template <class T> EMULATOR_INLINE T __ldcg(const T* p) { return *p; }
template <class T> EMULATOR_INLINE T __ldcs(const T* p) { return *p; }
template <class T> EMULATOR_INLINE T __ldlu(const T* p) { return *p; }
template <class T> EMULATOR_INLINE T __ldcv(const T* p) { return *p; }
template <class T> EMULATOR_INLINE void __stcg(T* p, T value) { *p = value; }
template <class T> EMULATOR_INLINE void __stcs(T* p, T value) { *p = value; }
template <class T> EMULATOR_INLINE void __stwb(T* p, T value) { *p = value; }
template <class T> EMULATOR_INLINE void __stwt(T* p, T value) { *p = value; }
// An address in shared memory as instructions take it: 32 bits, for the running thread block only.
EMULATOR_INLINE size_t __cvta_generic_to_shared(const void* p) { return emulator::to_shared(p); }
EMULATOR_INLINE void* __cvta_shared_to_generic(size_t address) {
    return emulator::from_shared((uint32_t)address);
}
inline long long clock64() { return emulator_nanoseconds(); }
inline clock_t clock() { return (clock_t)emulator_nanoseconds(); }
EMULATOR_INLINE void __trap() { emulator_trap(); }
// Kernels run one after the other here, so there is nothing to wait for.
EMULATOR_INLINE void cudaTriggerProgrammaticLaunchCompletion() {}
EMULATOR_INLINE void cudaGridDependencySynchronize() {}
EMULATOR_INLINE void __nanosleep(unsigned) { emulator_poll(nullptr, nullptr); }

// What kernels print goes to Python.
#define printf emulator_print
namespace std {
using ::emulator_print;
}
