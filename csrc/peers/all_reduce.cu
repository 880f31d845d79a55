// All-reduce in one shot: every rank writes its x into the memory of all others.
//
// Needs     GPUs of one host that can write into each other's memory, over NVLink or PCIe. The
//           emulator, and one GPU, run all ranks in one grid: all_reduce_in_one_grid.
// Computes  x = the sum of all ranks' x, in float32, rank 0's first, rounded once: every rank gets
//           the same bits. All ranks launch it together, with the same count.
// Shapes    x [count]: float32, float16 or bfloat16; whole chunks of 16 bytes, at most MOST_BYTES
// Owns      each thread: every n-th chunk of 16 bytes, with n threads in the grid. It sends these
//           chunks, and adds up the chunks of the other ranks at the same positions.
// Moves     each rank sends (ranks - 1) × the size of x and reads ranks × the size of x
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
// Source    vLLM, csrc/custom_all_reduce.cuh, where ranks read the parts out of their peers' memory
#include "common.cuh"

constexpr int THREADS = 512, BLOCKS = 32;
constexpr int MOST_RANKS = 8;
constexpr int MOST_BYTES = 1048576;  // of x
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

template <typename T>
static __device__ void all_reduce(T* x, const Memories& memories, int count, int rank, int ranks) {
    Memory* own = memories.of[rank];
    unsigned launch = own->launches[blockIdx.x] + 1;
    int set = launch % 2, begin = blockIdx.x * blockDim.x * Vec<T>::SIZE;
    int first = begin + threadIdx.x * Vec<T>::SIZE, step = gridDim.x * blockDim.x * Vec<T>::SIZE;

    if (begin < count) {
        for (int i = first; i < count; i += step) {
            Vec<T> mine = load16(x + i);
            for (int k = 1; k < ranks; ++k) {  // each rank begins with a different peer
                Memory* peer = memories.of[(rank + k) % ranks];
                store16(reinterpret_cast<T*>(peer->parts[set][rank]) + i, mine);
            }
        }
        __syncthreads();
        int other = threadIdx.x;
        if (other < ranks && other != rank) {
            store_release(&memories.of[other]->flags[blockIdx.x][rank], launch);
            wait_for(&own->flags[blockIdx.x][other], launch, &own->stop);
        }
        __syncthreads();
        for (int i = first; i < count; i += step) {
            float sums[Vec<T>::SIZE] = {};
            for (int r = 0; r < ranks; ++r) {
                const T* from = reinterpret_cast<const T*>(own->parts[set][r]);
                Vec<T> part = load16((r == rank ? x : from) + i);
                for (int k = 0; k < Vec<T>::SIZE; ++k) sums[k] += to_float(part[k]);
            }
            Vec<T> out;
            for (int k = 0; k < Vec<T>::SIZE; ++k) out[k] = from_float<T>(sums[k]);
            store16(x + i, out);
        }
    }
    // A thread block without a chunk counts launches too, so that all use the same set.
    __syncthreads();
    if (threadIdx.x == 0) own->launches[blockIdx.x] = launch;
    __syncthreads();
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    all_reduce_of_a_rank(T* x, const __grid_constant__ Memories memories, int count, int rank,
                         int ranks) {
    all_reduce(x, memories, count, rank, ranks);
}

// Every row of the grid is a rank. The thread blocks wait for each other, so all must be resident.
template <typename T>
__global__ void all_reduce_of_rows(T* x, const __grid_constant__ Memories memories, int count,
                                   int ranks, int times) {
    for (int n = 0; n < times; ++n)
        all_reduce(x + (size_t)blockIdx.y * count, memories, count, blockIdx.y, ranks);
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

template <typename T>
static cudaError_t launch(T* x, int count, cudaStream_t stream) {
    if (!num_ranks) return cudaErrorInvalidValue;
    if (cudaError_t error = check(x, count)) return error;
    if (count == 0) return cudaSuccess;
    all_reduce_of_a_rank<<<BLOCKS, THREADS, 0, stream>>>(x, mapped, count, own_rank, num_ranks);
    return cudaGetLastError();
}

// x [ranks, count]; `memory` holds one Memory per rank, all 0 at first. Computes `times` all-reduces.
template <typename T>
static cudaError_t launch_rows(T* x, unsigned char* memory, int count, int ranks, int times,
                               cudaStream_t stream) {
    if (ranks < 1 || ranks > MOST_RANKS) return cudaErrorInvalidValue;
    if (cudaError_t error = check(x, count)) return error;
    if (count == 0) return cudaSuccess;
    Memories memories = {};
    for (int r = 0; r < ranks; ++r) memories.of[r] = reinterpret_cast<Memory*>(memory) + r;
    void* arguments[] = {&x, &memories, &count, &ranks, &times};
    return cudaLaunchCooperativeKernel((void*)all_reduce_of_rows<T>, dim3(4, ranks),
                                       dim3(128), arguments, 0, stream);
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
