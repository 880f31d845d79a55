// All-reduce in one shot: every rank writes its x into the memory of all others.
//
// Needs     GPUs of one host that can write into each other's memory, over NVLink or PCIe. The
//           emulator, and one GPU, run all ranks in one grid: all_reduce_in_one_grid.
// Computes  x = the sum of all ranks' x, in float32, rank 0's first, rounded once: every rank gets
//           the same bits. All ranks launch it together, with the same count.
//           all_reduce_add_rms_norm then sets total = the sum + residual and out = the RMSNorm of
//           total, with the bits of add_rms_norm in norm/rms_norm.cu; x is only read.
// Shapes    x [count], or x, residual, out and total [rows, size] and weight [size]: float32, float16
//           or bfloat16; whole chunks of 16 bytes, x of at most MOST_BYTES, a row of at most 16 KiB
// Owns      each thread block: rows of `size`; without a norm, rows of one chunk per thread. Each
//           thread: some 16-byte chunks of these rows. It sends them, and adds up the chunks of the
//           other ranks at the same positions.
// Moves     each rank sends (ranks - 1) × the size of x and reads ranks × the size of x; with a
//           norm it also reads residual and weight, and writes total and out
// Oracle    sums in the same order, equal in every bit, in tests/test_peers.py
// Idea      a ring all-reduce takes 2 × (ranks - 1) messages one after the other. For a small x
//           latency dominates, so each rank sends all of it to all others, in one message.
//           - A flag says that a part has arrived. It is stored with release and read with acquire
//             semantics, at system scope: a thread that sees it also sees the part.
//           - A flag holds the number of the launch, counted in device memory, so flags are never
//             cleared, and a CUDA graph, whose arguments are fixed, sends a new one each time.
//           - There are two sets of parts, for even and odd launches, so no rank needs to know when
//             its parts were read. A rank that begins launch n + 2 has all flags of launch
//             n + 1, so the others have finished launch n, which read the same set.
//           - It is launched while the kernel that computes x still runs, and the next kernel while
//             it runs itself (follow.cuh): launch overhead overlaps with the kernel before.
// Source    vLLM, csrc/custom_all_reduce.cuh, where ranks read the parts out of their peers' memory
#include "follow.cuh"
#include "norm/row_sum.cuh"

constexpr int THREADS = 512, BLOCKS = 32;
constexpr int MOST_RANKS = 8;
constexpr int MOST_BYTES = 1048576;  // of x
constexpr int MOST_CHUNKS = 1024;    // of a row that is normalized
constexpr int POLLS = 1024;          // of a flag, between two looks at `stop`

// One rank's memory, into which its peers write. All bytes are 0 at first.
struct Memory {
    unsigned flags[BLOCKS][MOST_RANKS];  // latest launch to arrive, by block and sender
    unsigned launches[BLOCKS];           // how many this rank has completed, by thread block
    unsigned stop;                       // if not 0, no flag is waited for
    alignas(16) unsigned char parts[2][MOST_RANKS][MOST_BYTES];
};
struct Memories {
    Memory* of[MOST_RANKS];  // by rank, as this process addresses them
};

// Store a flag. A thread that sees it also sees what this thread block stored before its last barrier.
static __device__ void store_release(unsigned* flag, unsigned value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
static __device__ unsigned load_acquire(const unsigned* flag) {
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

// Wait until a flag is at least `launch`; it is larger if its rank has begun the next launch. The
// numbers wrap, so their signed difference is compared.
static __device__ void wait_for(const unsigned* flag, unsigned launch, const unsigned* stop) {
    for (int polls = 1; (int)(load_acquire(flag) - launch) < 0; ++polls) {
        if (polls % POLLS == 0 && load_acquire(stop)) return;
        __nanosleep(20);  // in the emulator this lets other threads run
    }
}

// What is done with a row of the sum. Without a weight it replaces x; with one it is added to
// `residual`, rounded, and normalized, as in norm/rms_norm.cu.
template <typename T>
struct Norm {
    const T *residual, *weight;
    T *out, *total;
    float eps;
};

// x consists of rows of `size`; the last may be shorter if they are not normalized. A thread has up
// to VECS chunks of a row. There are at most MOST ranks.
template <int MOST, int VECS, typename T>
static __device__ void all_reduce(T* x, const Norm<T>& norm, const Memories& memories, int count,
                                  int size, int rank, int ranks) {
    constexpr int SIZE = Vec<T>::SIZE;
    Memory* own = memories.of[rank];
    unsigned launch = own->launches[blockIdx.x] + 1;
    int set = launch % 2, begin = blockIdx.x * size, rows = gridDim.x * size;  // to the next row
    int first = threadIdx.x * SIZE, step = blockDim.x * SIZE;

    for (int row = begin; row < count; row += rows) {
        int end = min(row + size, count);
#pragma unroll
        for (int v = 0, i = row + first; v < VECS && i < end; ++v, i += step) {
            Vec<T> mine = load16(x + i);
            for (int k = 1; k < ranks; ++k) {  // each rank begins with a different peer
                Memory* peer = memories.of[(rank + k) % ranks];
                store16(reinterpret_cast<T*>(peer->parts[set][rank]) + i, mine);
            }
        }
    }
    for (int row = begin; row < count; row += rows) {
        int end = min(row + size, count);
        Vec<T> sums[VECS], residuals[VECS], weights[VECS];
#pragma unroll
        for (int v = 0, i = row + first; norm.weight && v < VECS && i < end; ++v, i += step) {
            residuals[v] = load16(norm.residual + i);  // while the parts travel
            weights[v] = load16(norm.weight + i - row);
        }
        if (row == begin) {
            __syncthreads();
            int other = threadIdx.x;
            if (other < ranks && other != rank) {
                store_release(&memories.of[other]->flags[blockIdx.x][rank], launch);
                wait_for(&own->flags[blockIdx.x][other], launch, &own->stop);
            }
            __syncthreads();
        }
        float squares = 0.0f;
#pragma unroll
        for (int v = 0, i = row + first; v < VECS && i < end; ++v, i += step) {
            Vec<T> parts[MOST];  // loaded together
#pragma unroll
            for (int r = 0; r < MOST; ++r) {
                const T* from = r == rank ? x : reinterpret_cast<const T*>(own->parts[set][r]);
                if (r < ranks) parts[r] = load16(from + i);
            }
            float sum[SIZE] = {};
#pragma unroll
            for (int r = 0; r < MOST; ++r) {
                if (r >= ranks) break;
                for (int k = 0; k < SIZE; ++k) sum[k] += to_float(parts[r][k]);
            }
            for (int k = 0; k < SIZE; ++k) {
                sums[v][k] = from_float<T>(sum[k]);
                if (!norm.weight) continue;
                sums[v][k] = from_float<T>(to_float(sums[v][k]) + to_float(residuals[v][k]));
                squares += to_float(sums[v][k]) * to_float(sums[v][k]);
            }
            store16((norm.weight ? norm.total : x) + i, sums[v]);
        }
        if (!norm.weight) continue;
        float scale = rsqrtf(row_sum(squares) / size + norm.eps);
#pragma unroll
        for (int v = 0, i = row + first; v < VECS && i < end; ++v, i += step) {
            for (int k = 0; k < SIZE; ++k)
                sums[v][k] = from_float<T>(to_float(sums[v][k]) * scale * to_float(weights[v][k]));
            store16(norm.out + i, sums[v]);
        }
        __syncthreads();  // wait until the sum is read: the next row's overwrites it
    }
    // A thread block without a chunk counts launches too, so that all use the same set.
    __syncthreads();
    if (threadIdx.x == 0) own->launches[blockIdx.x] = launch;
    __syncthreads();
}

template <int MOST, int VECS, typename T>
__global__ void __launch_bounds__(THREADS)
    all_reduce_of_a_rank(T* x, const Norm<T> norm, const __grid_constant__ Memories memories,
                         int count, int size, int rank, int ranks) {
    let_next_begin();
    wait_for_last();  // not only for x: a peer that sees a flag relies on all earlier launches
    all_reduce<MOST, VECS>(x, norm, memories, count, size, rank, ranks);
}

// Every row of the grid is a rank. The thread blocks wait for each other, so all must be resident.
template <int MOST, int VECS, typename T>
__global__ void __launch_bounds__(THREADS)
    all_reduce_of_rows(T* x, const Norm<T> norm, const __grid_constant__ Memories memories,
                       int count, int size, int ranks, int times) {
    size_t own = (size_t)blockIdx.y * count;
    Norm<T> of_rank = norm;
    if (norm.weight) of_rank.out += own, of_rank.total += own;
    for (int n = 0; n < times; ++n)
        all_reduce<MOST, VECS>(x + own, of_rank, memories, count, size, blockIdx.y, ranks);
}

// ---------------------------------------------------------------------------- memory of peers

static Memories mapped;  // the memory of all ranks in this process's latest group
static int own_rank, num_ranks;

// Return an error, and clear it so that a later cudaGetLastError does not report it again.
static cudaError_t told(cudaError_t error) {
    if (error != cudaSuccess) cudaGetLastError();
    return error;
}

// Allocate this rank's memory, and free that of an earlier group. Write the handle by which other
// processes can map it to `handle`, 64 bytes on this GPU.
extern "C" cudaError_t share_memory(unsigned char* handle, cudaStream_t stream) {
#ifdef YAIE_EMULATOR
    return cudaErrorNotSupported;
#else
    for (int r = 0; r < num_ranks; ++r) {
        if (mapped.of[r] && r != own_rank) cudaIpcCloseMemHandle(mapped.of[r]);
    }
    if (num_ranks) cudaFree(mapped.of[own_rank]);
    mapped = {}, own_rank = 0, num_ranks = 1;
    cudaIpcMemHandle_t own;
    cudaError_t error = cudaMalloc(&mapped.of[0], sizeof(Memory));
    if (error == cudaSuccess) error = cudaMemsetAsync(mapped.of[0], 0, sizeof(Memory), stream);
    if (error == cudaSuccess) error = cudaIpcGetMemHandle(&own, mapped.of[0]);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(handle, &own, sizeof(own), cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    return told(error);
#endif
}

// Map the memory of all ranks. `handles` holds 64 bytes per rank, in the order of the ranks.
extern "C" cudaError_t map_memory(const unsigned char* handles, int rank, int ranks,
                                  cudaStream_t stream) {
#ifdef YAIE_EMULATOR
    return cudaErrorNotSupported;
#else
    if (ranks > MOST_RANKS || rank >= ranks) return cudaErrorInvalidValue;
    Memory* own = mapped.of[0];
    mapped = {}, own_rank = rank, num_ranks = ranks;
    mapped.of[rank] = own;
    cudaIpcMemHandle_t theirs[MOST_RANKS];
    cudaError_t error = cudaMemcpyAsync(theirs, handles, ranks * sizeof(cudaIpcMemHandle_t),
                                        cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    for (int r = 0; r < ranks && error == cudaSuccess; ++r) {
        void** place = reinterpret_cast<void**>(&mapped.of[r]);
        if (r != rank)
            error = cudaIpcOpenMemHandle(place, theirs[r], cudaIpcMemLazyEnablePeerAccess);
    }
    return told(error);
#endif
}

// Release kernels that wait for a rank that has ended; their sums will be wrong. `any` is any tensor on
// this GPU.
extern "C" cudaError_t stop_waiting(const unsigned char* any, cudaStream_t stream) {
    static const unsigned yes = 1;
    if (!num_ranks) return cudaSuccess;
    cudaStream_t beside;  // the waiting kernels occupy `stream`
    cudaError_t error = cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking);
    if (error != cudaSuccess) return error;
    error = cudaMemcpyAsync(&mapped.of[own_rank]->stop, &yes, sizeof(yes), cudaMemcpyHostToDevice,
                            beside);
    cudaStreamDestroy(beside);
    return error;
}

// ------------------------------------------------------------------------------------ launches

template <typename T>
static cudaError_t check(const T* x, int count) {
    if (!aligned16(x) || count % Vec<T>::SIZE) return cudaErrorMisalignedAddress;
    return count < 0 || count > MOST_BYTES / (int)sizeof(T) ? cudaErrorInvalidValue : cudaSuccess;
}

// The same check for a sum that is normalized.
template <typename T>
static cudaError_t check(const T* x, const Norm<T>& norm, int rows, int size) {
    if (size % Vec<T>::SIZE || !aligned16(norm.residual, norm.weight, norm.out, norm.total))
        return cudaErrorMisalignedAddress;
    if (rows < 0 || size < 1 || size > MOST_CHUNKS * Vec<T>::SIZE) return cudaErrorInvalidValue;
    return check(x, rows > MOST_BYTES / size ? MOST_BYTES : rows * size);
}

// As many threads per row as in norm/rms_norm.cu, so that both round alike.
template <typename T>
static int threads_of(int size) {
    int vecs = size / Vec<T>::SIZE;
    return ceil_div(vecs <= 128 ? vecs : ceil_div(vecs, 2), WARP) * WARP;
}

template <typename T>
static cudaError_t launch(T* x, const Norm<T>& norm, int count, int size, int threads,
                          cudaStream_t stream) {
    if (!num_ranks) return cudaErrorInvalidValue;
    if (count == 0) return cudaSuccess;
    bool two = num_ranks <= 2;
    auto kernel = two ? all_reduce_of_a_rank<2, 1, T> : all_reduce_of_a_rank<MOST_RANKS, 1, T>;
    if (norm.weight)
        kernel = two ? all_reduce_of_a_rank<2, 2, T> : all_reduce_of_a_rank<MOST_RANKS, 2, T>;
    return launch_behind(kernel, BLOCKS, threads, 0, stream, x, norm, mapped, count, size, own_rank,
                         num_ranks);
}

template <typename T>
static cudaError_t launch(T* x, int count, cudaStream_t stream) {
    if (cudaError_t error = check(x, count)) return error;
    return launch(x, Norm<T>{}, count, THREADS * Vec<T>::SIZE, THREADS, stream);
}

template <typename T>
static cudaError_t launch(T* x, const Norm<T>& norm, int rows, int size, cudaStream_t stream) {
    if (cudaError_t error = check(x, norm, rows, size)) return error;
    return launch(x, norm, rows * size, size, threads_of<T>(size), stream);
}

// x, out and total are those of all ranks; `memory` holds one Memory per rank, all 0 at first.
// Computes `times` all-reduces.
template <typename T>
static cudaError_t launch_rows(T* x, Norm<T> norm, unsigned char* memory, int count, int size,
                               int threads, int ranks, int times, cudaStream_t stream) {
    if (ranks < 1 || ranks > MOST_RANKS) return cudaErrorInvalidValue;
    if (count == 0) return cudaSuccess;
    Memories memories = {};
    for (int r = 0; r < ranks; ++r) memories.of[r] = reinterpret_cast<Memory*>(memory) + r;
    bool two = ranks <= 2;
    auto kernel = two ? all_reduce_of_rows<2, 1, T> : all_reduce_of_rows<MOST_RANKS, 1, T>;
    if (norm.weight)
        kernel = two ? all_reduce_of_rows<2, 2, T> : all_reduce_of_rows<MOST_RANKS, 2, T>;
    void* arguments[] = {&x, &norm, &memories, &count, &size, &ranks, &times};
    return cudaLaunchCooperativeKernel((void*)kernel, dim3(4, ranks), dim3(threads), arguments, 0,
                                       stream);
}

template <typename T>
static cudaError_t launch_rows(T* x, unsigned char* memory, int count, int ranks, int times,
                               cudaStream_t stream) {
    if (cudaError_t error = check(x, count)) return error;
    return launch_rows(x, Norm<T>{}, memory, count, 128 * Vec<T>::SIZE, 128, ranks, times, stream);
}

// residual and weight are the same on all ranks.
template <typename T>
static cudaError_t launch_rows(T* x, const Norm<T>& norm, unsigned char* memory, int rows,
                               int size, int ranks, int times, cudaStream_t stream) {
    if (cudaError_t error = check(x, norm, rows, size)) return error;
    return launch_rows(x, norm, memory, rows * size, size, threads_of<T>(size), ranks, times,
                       stream);
}

extern "C" cudaError_t all_reduce_f32(float* x, int count, cudaStream_t stream) {
    return launch(x, count, stream);
}
extern "C" cudaError_t all_reduce_f16(__half* x, int count, cudaStream_t stream) {
    return launch(x, count, stream);
}
extern "C" cudaError_t all_reduce_bf16(__nv_bfloat16* x, int count, cudaStream_t stream) {
    return launch(x, count, stream);
}
extern "C" cudaError_t all_reduce_add_rms_norm_f32(float* x, const float* residual,
                                                   const float* weight, float* out, float* total,
                                                   int rows, int size, float eps,
                                                   cudaStream_t stream) {
    Norm<float> norm{residual, weight, out, total, eps};
    return launch(x, norm, rows, size, stream);
}
extern "C" cudaError_t all_reduce_add_rms_norm_f16(__half* x, const __half* residual,
                                                   const __half* weight, __half* out,
                                                   __half* total, int rows, int size, float eps,
                                                   cudaStream_t stream) {
    Norm<__half> norm{residual, weight, out, total, eps};
    return launch(x, norm, rows, size, stream);
}
extern "C" cudaError_t all_reduce_add_rms_norm_bf16(__nv_bfloat16* x,
                                                    const __nv_bfloat16* residual,
                                                    const __nv_bfloat16* weight,
                                                    __nv_bfloat16* out, __nv_bfloat16* total,
                                                    int rows, int size, float eps,
                                                    cudaStream_t stream) {
    Norm<__nv_bfloat16> norm{residual, weight, out, total, eps};
    return launch(x, norm, rows, size, stream);
}
extern "C" cudaError_t all_reduce_in_one_grid_f32(float* x, unsigned char* memory, int count,
                                                  int ranks, int times, cudaStream_t stream) {
    return launch_rows(x, memory, count, ranks, times, stream);
}
extern "C" cudaError_t all_reduce_in_one_grid_f16(__half* x, unsigned char* memory, int count,
                                                  int ranks, int times, cudaStream_t stream) {
    return launch_rows(x, memory, count, ranks, times, stream);
}
extern "C" cudaError_t all_reduce_in_one_grid_bf16(__nv_bfloat16* x, unsigned char* memory,
                                                   int count, int ranks, int times,
                                                   cudaStream_t stream) {
    return launch_rows(x, memory, count, ranks, times, stream);
}
extern "C" cudaError_t norm_in_one_grid_f32(float* x, const float* residual, const float* weight,
                                            float* out, float* total, unsigned char* memory,
                                            int rows, int size, int ranks, int times, float eps,
                                            cudaStream_t stream) {
    Norm<float> norm{residual, weight, out, total, eps};
    return launch_rows(x, norm, memory, rows, size, ranks, times, stream);
}
extern "C" cudaError_t norm_in_one_grid_f16(__half* x, const __half* residual,
                                            const __half* weight, __half* out, __half* total,
                                            unsigned char* memory, int rows, int size, int ranks,
                                            int times, float eps, cudaStream_t stream) {
    Norm<__half> norm{residual, weight, out, total, eps};
    return launch_rows(x, norm, memory, rows, size, ranks, times, stream);
}
extern "C" cudaError_t norm_in_one_grid_bf16(__nv_bfloat16* x, const __nv_bfloat16* residual,
                                             const __nv_bfloat16* weight, __nv_bfloat16* out,
                                             __nv_bfloat16* total, unsigned char* memory, int rows,
                                             int size, int ranks, int times, float eps,
                                             cudaStream_t stream) {
    Norm<__nv_bfloat16> norm{residual, weight, out, total, eps};
    return launch_rows(x, norm, memory, rows, size, ranks, times, stream);
}
