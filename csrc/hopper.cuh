// Hopper's asynchronous instructions (sm_90a): one function per PTX instruction.
//
// Two units work beside the threads. TMA copies boxes of tensors between global and shared memory;
// tensor cores multiply matrices that lie in shared memory (wgmma). A thread starts an operation and
// goes on. What tells that it is complete:
//   a load by TMA    an mbarrier in shared memory, which counts the bytes that have arrived
//   a store by TMA   a group of the thread that started it, as with cp.async
//   a wgmma          a group of the warp group that started it: 4 warps, 128 threads
// Both units see shared memory through the asynchronous proxy: what threads have stored there is seen
// after fence_proxy_async by the threads that stored, then a barrier.
#pragma once

#include <cuda.h>

#include "mma.cuh"

constexpr int WARP_GROUP = 128;  // threads

// --------------------------------------------------------------------------------- mbarrier

// A phase of an mbarrier is complete when `arrivals` threads have arrived and as many bytes as were
// expected; then the next begins. Phases have parity 0, 1, 0, ...: a wait for the parity of the
// present phase waits until it is complete; a wait for the other returns immediately, since the
// phase before is complete.
__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}
// After all mbarrier_init and before a barrier: TMA and the cluster's other thread blocks see them.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier))
                 : "memory");
}
// Arrive, and have the phase wait for exactly this many bytes more.
__device__ __forceinline__ void mbarrier_arrive_expect(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(
                     shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ bool mbarrier_try_wait(uint64_t* barrier, int parity) {
    uint32_t complete;
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.b32 %0, 1, 0, complete;\n"
        "}\n"
        : "=r"(complete)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    return complete;
}
__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, int parity) {
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

// ------------------------------------------------------------------------- fences and barriers

__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}
// A barrier of `threads` threads, whole warps; ids are 1 to 15, since 0 is __syncthreads.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}
// The same without waiting: `threads` counts those that arrive and those that sync.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

// Each thread of a warp group gives registers up, or waits until that many are free: a multiple
// of 8 from 24 to 256. The kernel needs __launch_bounds__(threads, 1).
template <int REGISTERS>
__device__ __forceinline__ void decrease_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void increase_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
}

// --------------------------------------------------------------------------------- clusters

// Thread blocks that run together on SMs beside each other, and reach each other's shared memory: a kernel
// with __cluster_dims__(x, y, z). All have started, and all that their threads have stored is seen,
// when cluster_sync returns; none may end before the others are done with its shared memory.
__device__ __forceinline__ void cluster_sync() {
    asm volatile(
        "barrier.cluster.arrive.release;\n"
        "barrier.cluster.wait.acquire;\n" ::
            : "memory");
}
__device__ __forceinline__ int cluster_rank() {  // of this thread block
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
    return rank;
}
// Arrive at the mbarrier at the same place in another thread block's shared memory. Only the threads of
// that block can wait there. The arrival is relaxed: it says that wgmma has read a stage, whose reads are
// complete after wgmma_wait, and orders no loads or stores of the thread. A release for the cluster
// would wait until all SMs see the thread's stores (MEMBAR.ALL.GPU in machine code), which in each step
// of cluster.cu takes as long as the products.
__device__ __forceinline__ void mbarrier_arrive_at(uint64_t* barrier, int rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(rank)
        : "memory");
}
// Wait for an mbarrier at which threads of other thread blocks arrive by `mbarrier_arrive_at`.
__device__ __forceinline__ void mbarrier_wait_cluster(uint64_t* barrier, int parity) {
    uint32_t complete = 0;
    while (!complete)
        asm volatile(
            "{\n"
            ".reg .pred complete;\n"
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%1], %2;\n"
            "selp.b32 %0, 1, 0, complete;\n"
            "}\n"
            : "=r"(complete)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
}

// -------------------------------------------------------------------------------------- TMA

// How the 16-byte chunks of a row are permuted in shared memory, so that the chunks of one column
// lie in different banks. Within SPAN bytes of a row, the chunk's number is xored with the number of
// the 128-byte line in shared memory, modulo the chunks of the span. The pattern repeats every
// 8 × SPAN bytes: that is how a tile in shared memory must be aligned.
enum class Swizzle : int { NONE = 0, SPAN_32 = 1, SPAN_64 = 2, SPAN_128 = 3 };

template <typename T> constexpr CUtensorMapDataType TENSOR_TYPE = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
template <> constexpr CUtensorMapDataType TENSOR_TYPE<__half> = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
template <>
constexpr CUtensorMapDataType TENSOR_TYPE<__nv_bfloat16> = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;

// A tensor in global memory and the box of it that one copy moves, on the host. Sizes and boxes count
// elements, the innermost dimension first; strides count the elements from one row, plane, ... to the
// next. Kernels take a map as a parameter `const __grid_constant__ CUtensorMap map`.
// Elements past the end of a tensor are loaded as zeros and not stored. The data and the strides in
// bytes are multiples of 16; a box has at most 256 elements in each dimension, and a row of it as many
// bytes as the swizzle spans. Otherwise it returns cudaErrorInvalidValue.
template <typename T, int RANK>
cudaError_t make_tensor_map(CUtensorMap* map, const T* data, const size_t (&sizes)[RANK],
                            const size_t* strides, const int (&box)[RANK], Swizzle swizzle) {
    cuuint64_t sizes_[RANK], bytes[RANK];
    cuuint32_t box_[RANK], steps[RANK];
    for (int i = 0; i < RANK; ++i) {
        sizes_[i] = sizes[i], box_[i] = box[i], steps[i] = 1;
        if (i < RANK - 1) bytes[i] = strides[i] * sizeof(T);
    }
    if (swizzle != Swizzle::NONE && box[0] * sizeof(T) != 16u << static_cast<int>(swizzle))
        return cudaErrorInvalidValue;
    // The driver's function, found at run time: nothing has to be linked with libcuda.
    void* function = nullptr;
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                         cudaEnableDefault, nullptr);
    if (error != cudaSuccess) return error;
    auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
    CUresult result = encode(map, TENSOR_TYPE<T>, RANK, const_cast<T*>(data), sizes_, bytes, box_,
                             steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             static_cast<CUtensorMapSwizzle>(swizzle),
                             CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Start loading the box whose first element is (x, y, z), x in the innermost dimension. Its bytes,
// zeros past the tensor's end included, are counted by `barrier`. One thread calls it.
__device__ __forceinline__ void tma_load(void* to, const CUtensorMap& map, uint64_t* barrier, int x) {
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3}], [%2];\n" ::"r"(shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x)
        : "memory");
}
__device__ __forceinline__ void tma_load(void* to, const CUtensorMap& map, uint64_t* barrier, int x,
                                         int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];\n" ::"r"(shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y)
        : "memory");
}
__device__ __forceinline__ void tma_load(void* to, const CUtensorMap& map, uint64_t* barrier, int x,
                                         int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];\n" ::"r"(shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
        : "memory");
}
__device__ __forceinline__ void tma_load(void* to, const CUtensorMap& map, uint64_t* barrier, int x,
                                         int y, int z, int u, int v) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];\n" ::"r"(shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
        : "memory");
}

// Start loading the box into each thread block of the cluster whose bit is set in `blocks`: to the same
// place in its shared memory, counted by the mbarrier at the same place. It is read only once.
__device__ __forceinline__ void tma_load_multicast(void* to, const CUtensorMap& map,
                                                   uint64_t* barrier, int x, int y,
                                                   uint16_t blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;\n" ::"r"(shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "h"(blocks)
        : "memory");
}

// Start storing a box. The stores of a thread since its last commit are a group; a thread waits until
// at most PENDING of its groups have still to read shared memory, or to be written.
__device__ __forceinline__ void tma_store(const CUtensorMap& map, const void* from, int x) {
    asm volatile(
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%2}], [%1];\n" ::"l"(&map),
        "r"(shared_address(from)), "r"(x)
        : "memory");
}
__device__ __forceinline__ void tma_store(const CUtensorMap& map, const void* from, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\n" ::"l"(&map),
        "r"(shared_address(from)), "r"(x), "r"(y)
        : "memory");
}
__device__ __forceinline__ void tma_store(const CUtensorMap& map, const void* from, int x, int y,
                                          int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];\n" ::"l"(
            &map),
        "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
        : "memory");
}
__device__ __forceinline__ void tma_store_commit() {
    asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}
template <int PENDING>
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(PENDING) : "memory");
}
template <int PENDING>
__device__ __forceinline__ void tma_store_wait() {
    asm volatile("cp.async.bulk.wait_group %0;\n" ::"n"(PENDING) : "memory");
}

// Store four 8 × 8 matrices with rows of 16 bytes, as ldmatrix_x4 loads them: lane l passes the
// address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4(void* row, uint32_t a, uint32_t b, uint32_t c,
                                            uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(
                     shared_address(row)),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// ------------------------------------------------------------------------------------ wgmma

// Where wgmma finds a matrix in shared memory. The matrix consists of parts of 8 rows × SPAN bytes,
// the swizzle's pattern, without a swizzle of 8 rows × 16 bytes. K-major: a row has consecutive k.
// MN-major: a row has consecutive rows of A or columns of B, and k counts rows.
//   bits  0-13  address of the first byte / 16
//   bits 16-29  leading bytes / 16: from one part to the next along a row. K-major with a swizzle:
//               not used, since 16 elements of k lie in one part
//   bits 32-45  stride bytes / 16: from one part of 8 rows to the next. MN-major without a swizzle:
//               leading and stride bytes change their places
//   bits 49-51  offset of the pattern: 0 for tiles that are aligned as Swizzle says
//   bits 62-63  0 without a swizzle, 1 for SPAN_128, 2 for SPAN_64, 3 for SPAN_32
__device__ __forceinline__ uint64_t matrix_descriptor(const void* first, int leading_bytes,
                                                      int stride_bytes, Swizzle swizzle) {
    uint64_t mode = (4 - static_cast<int>(swizzle)) % 4;
    return (shared_address(first) >> 4 & 0x3fff) |
           static_cast<uint64_t>(leading_bytes >> 4 & 0x3fff) << 16 |
           static_cast<uint64_t>(stride_bytes >> 4 & 0x3fff) << 32 | mode << 62;
}
// The descriptor of a matrix that begins this many bytes further on.
__device__ __forceinline__ uint64_t advance(uint64_t descriptor, int bytes) {
    return descriptor + (bytes >> 4);
}

// Before the first wgmma, and after other code has changed the registers that one uses.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
// Close a group: the wgmma that this warp group has started since the last commit.
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// Wait until at most the PENDING newest groups are still running. Before, neither the accumulators
// nor registers of A may be touched.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(PENDING) : "memory");
}

// c = a b, or c += a b if `add`, where a is 64 × 16, b is 16 × N and c is 64 × N. All 128 threads of a
// warp group call it. Warp w of the group holds rows 16 w to 16 w + 15 of c. With group = lane / 4 and
// pair = 2 × (lane % 4), c[4 i], c[4 i + 1] are row `group` and columns 8 i + pair and the next, and
// c[4 i + 2], c[4 i + 3] the same of row `group` + 8: as mma_16x8x16 has them for each 8 columns.
// a comes from shared memory by its descriptor, or from registers as mma_16x8x16 has it.
// A_MN and B_MN tell that the matrix is MN-major; a [m, k] in rows is K-major, b [k, n] MN-major.
#define C_16(i)                                                                                   \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]),   \
        "+f"(c[i + 6]), "+f"(c[i + 7]), "+f"(c[i + 8]), "+f"(c[i + 9]), "+f"(c[i + 10]),          \
        "+f"(c[i + 11]), "+f"(c[i + 12]), "+f"(c[i + 13]), "+f"(c[i + 14]), "+f"(c[i + 15])
#define C_32 C_16(0), C_16(16)
#define C_40                                                                                      \
    C_32, "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]),           \
        "+f"(c[38]), "+f"(c[39])
#define C_64 C_32, C_16(32), C_16(48)
#define C_80 C_64, C_16(64)
#define C_96 C_80, C_16(80)
#define C_112 C_96, C_16(96)
#define C_128 C_112, C_16(112)
#define R_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define R_32                                                                                     \
    R_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define R_40 R_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define R_64                                                                                     \
    R_40 ", %40, %41, %42, %43, %44, %45, %46, %47, "                                            \
         "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define R_80                                                                                     \
    R_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define R_96                                                                                     \
    R_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define R_112                                                                                    \
    R_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "    \
         "%110, %111"
#define R_128                                                                                    \
    R_112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "           \
          "%124, %125, %126, %127"
// The instruction for N columns; further operands begin after the N / 2 accumulators.
#define WGMMA_SHARED(N, TYPE, REGISTERS, ACCUMULATORS, A, B, ADD, A_IS_MN, B_IS_MN)              \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                            \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                 \
                 " {" REGISTERS "}, " A ", " B ", add, 1, 1, " A_IS_MN ", " B_IS_MN ";\n}\n"     \
                 : ACCUMULATORS                                                                  \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(A_MN), "n"(B_MN)              \
                 : "memory")
#define WGMMA_REGISTERS(N, TYPE, REGISTERS, ACCUMULATORS, A, B, ADD, B_IS_MN)                    \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                            \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                 \
                 " {" REGISTERS "}, {" A "}, " B ", add, 1, 1, " B_IS_MN ";\n}\n"                \
                 : ACCUMULATORS                                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                           \
                   "r"(static_cast<int>(add)), "n"(B_MN)                                         \
                 : "memory")
#define WGMMA_SHARED_ANY_N(TYPE)                                                                 \
    static_assert(N == 32 || N == 64 || N == 80 || N == 128 || N == 160 || N == 192 ||           \
                      N == 224 || N == 256,                                                      \
                  "N is 32, 64, 80, 128, 160, 192, 224 or 256");                                 \
    if constexpr (N == 32)                                                                       \
        WGMMA_SHARED(32, TYPE, R_16, C_16(0), "%16", "%17", "%18", "%19", "%20");                \
    else if constexpr (N == 64)                                                                  \
        WGMMA_SHARED(64, TYPE, R_32, C_32, "%32", "%33", "%34", "%35", "%36");                   \
    else if constexpr (N == 80)                                                                  \
        WGMMA_SHARED(80, TYPE, R_40, C_40, "%40", "%41", "%42", "%43", "%44");                   \
    else if constexpr (N == 128)                                                                 \
        WGMMA_SHARED(128, TYPE, R_64, C_64, "%64", "%65", "%66", "%67", "%68");                  \
    else if constexpr (N == 160)                                                                 \
        WGMMA_SHARED(160, TYPE, R_80, C_80, "%80", "%81", "%82", "%83", "%84");                  \
    else if constexpr (N == 192)                                                                 \
        WGMMA_SHARED(192, TYPE, R_96, C_96, "%96", "%97", "%98", "%99", "%100");                 \
    else if constexpr (N == 224)                                                                 \
        WGMMA_SHARED(224, TYPE, R_112, C_112, "%112", "%113", "%114", "%115", "%116");           \
    else                                                                                         \
        WGMMA_SHARED(256, TYPE, R_128, C_128, "%128", "%129", "%130", "%131", "%132")
#define WGMMA_REGISTERS_ANY_N(TYPE)                                                              \
    static_assert(N == 64 || N == 128 || N == 192 || N == 256, "N is 64, 128, 192 or 256");      \
    if constexpr (N == 64)                                                                       \
        WGMMA_REGISTERS(64, TYPE, R_32, C_32, "%32, %33, %34, %35", "%36", "%37", "%38");        \
    else if constexpr (N == 128)                                                                 \
        WGMMA_REGISTERS(128, TYPE, R_64, C_64, "%64, %65, %66, %67", "%68", "%69", "%70");       \
    else if constexpr (N == 192)                                                                 \
        WGMMA_REGISTERS(192, TYPE, R_96, C_96, "%96, %97, %98, %99", "%100", "%101", "%102");    \
    else                                                                                         \
        WGMMA_REGISTERS(256, TYPE, R_128, C_128, "%128, %129, %130, %131", "%132", "%133", "%134")

template <typename T, int N, bool A_MN = false, bool B_MN = false>
__device__ __forceinline__ void wgmma(float (&c)[N / 2], uint64_t a, uint64_t b, bool add = true) {
    if constexpr (sizeof(T) == 2 && TENSOR_TYPE<T> == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) {
        WGMMA_SHARED_ANY_N("bf16");
    } else {
        WGMMA_SHARED_ANY_N("f16");
    }
}
template <typename T, int N, bool B_MN = false>
__device__ __forceinline__ void wgmma(float (&c)[N / 2], const uint32_t (&a)[4], uint64_t b,
                                      bool add = true) {
    if constexpr (sizeof(T) == 2 && TENSOR_TYPE<T> == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) {
        WGMMA_REGISTERS_ANY_N("bf16");
    } else {
        WGMMA_REGISTERS_ANY_N("f16");
    }
}
