// Matrix product on Hopper, beside rung 7 of 8: two thread blocks load each tile of b once.
//
// Needs     sm_90a (wgmma, TMA, clusters)
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float16 or bfloat16; n and k must be multiples of 8 and
//           all addresses multiples of 16, or the launcher returns cudaErrorMisalignedAddress
// Owns      each cluster of two thread blocks, one per SM: every gridDim.x / 2-th 256 × 256 elements
//           of c; each thread block: 128 of the rows; each of its two consumers: 64
// Moves     for each tile of c, 128 rows of a and half of 256 columns of b: m × n × k / 128 elements,
//           which is 1 / 128 byte per operation; from shared memory 5 / 256
// Compiled  168 registers per thread, none spilled (ptxas 13.0)
// Oracle    a b in float64, in tests/test_kernels.py
// Idea      two thread blocks that multiply the same columns of b would both fetch them from the L2
//           cache. In a cluster each loads one half, and TMA's multicast writes it into the shared
//           memory of both: what leaves the L2 cache falls by a third. A stage of the ring is now
//           free only when the consumers of both thread blocks have read it, since either producer
//           writes to both; and neither may end while the other still writes or arrives there.
#include "matmul/hopper/tiles.cuh"

constexpr int TILE_M = 128, TILE_N = 256;
constexpr int STAGES = 4;
constexpr int GROUP = 8;  // rows of tiles that consecutive tiles share
constexpr int BLOCKS = 2;  // of a cluster
constexpr int CONSUMERS = TILE_M / 64, THREADS = (1 + CONSUMERS) * WARP_GROUP;
constexpr int A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_K * TILE_N * 2;
constexpr int STAGE = A_BYTES + B_BYTES;
constexpr int PART = 64 * LINE, HALF = 2 * PART;  // elements: 64 rows of 64 and of 128 columns of c
constexpr int SHARED = STAGES * (STAGE + 2 * 8) + CONSUMERS * HALF * 2;

// Store the 64 × TILE_N sums of a warp group through `place`, in two halves of 128 columns.
template <typename T>
__device__ __forceinline__ void store_by_tma(const CUtensorMap& c_map, T* place,
                                             const float (&sums)[TILE_N / 2], int row, int column) {
    int thread = threadIdx.x % WARP_GROUP, lane = thread % WARP, barrier = threadIdx.x / WARP_GROUP;
    int line = thread / WARP * 16 + lane % 16;  // whose address this lane passes to stmatrix
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (thread == 0) tma_store_wait_read<0>();  // what was here has been read
        named_barrier_sync(barrier, WARP_GROUP);
#pragma unroll
        for (int i = 0; i < 8; ++i) {  // 16 columns: two 16-byte chunks of a line
            const float* held = &sums[half * 64 + i * 8];
            int chunk = (i * 2 + lane / 16) % 8;
            stmatrix_x4(place + i / 4 * PART + line * LINE + (chunk ^ line % 8) * 8,
                        pack2<T>(held[0], held[1]), pack2<T>(held[2], held[3]),
                        pack2<T>(held[4], held[5]), pack2<T>(held[6], held[7]));
        }
        fence_proxy_async();
        named_barrier_sync(barrier, WARP_GROUP);
        if (thread > 0) continue;
        for (int part = 0; part < 2; ++part)
            tma_store(c_map, place + part * PART, column + half * 128 + part * LINE, row);
        tma_store_commit();
    }
}

template <typename T>
__global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
    matmul_cluster(const __grid_constant__ CUtensorMap a_map,
                   const __grid_constant__ CUtensorMap b_map,
                   const __grid_constant__ CUtensorMap c_map, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    T* places = reinterpret_cast<T*>(shared + STAGES * STAGE);
    uint64_t* full = reinterpret_cast<uint64_t*>(places + CONSUMERS * HALF);
    uint64_t* empty = full + STAGES;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&full[stage], 1);
            mbarrier_init(&empty[stage], BLOCKS * CONSUMERS * WARP_GROUP / WARP);
        }
        fence_mbarrier_init();
    }
    cluster_sync();  // the other thread block's barriers are ready as well

    int rank = cluster_rank(), cluster = blockIdx.x / BLOCKS, clusters = gridDim.x / BLOCKS;
    int tiles_m = ceil_div(m, BLOCKS * TILE_M), tiles_n = ceil_div(n, TILE_N), first_row, first_column;
    int load = 0;  // tiles of a and b so far: which stage of the ring, and which phase of its barriers
    if (threadIdx.x < WARP_GROUP) {  // the producer, of which one thread is enough
        decrease_registers<40>();
        if (threadIdx.x > 0) return;
        for (int index = cluster; index < tiles_m * tiles_n; index += clusters) {
            place_tile<BLOCKS * TILE_M, TILE_N, GROUP>(index, tiles_m, tiles_n, first_row,
                                                       first_column);
            for (int done = 0; done < k; done += TILE_K, ++load) {
                int stage = load % STAGES;
                T* a_tile = reinterpret_cast<T*>(shared + stage * STAGE);
                T* b_tile = a_tile + TILE_M * TILE_K;
                mbarrier_wait_cluster(&empty[stage], load / STAGES % 2 ^ 1);  // the first time immediately
                mbarrier_arrive_expect(&full[stage], STAGE);
                tma_load(a_tile, a_map, &full[stage], done, first_row + rank * TILE_M);
                int begin = rank * TILE_N / BLOCKS;  // of the half that this thread block loads
                for (int column = begin; column < begin + TILE_N / BLOCKS; column += LINE)
                    tma_load_multicast(b_tile + column * TILE_K, b_map, &full[stage],
                                       first_column + column, done, (1 << BLOCKS) - 1);
            }
        }
        cluster_sync();
        return;
    }
    increase_registers<232>();
    int consumer = threadIdx.x / WARP_GROUP - 1;
    for (int index = cluster; index < tiles_m * tiles_n; index += clusters) {
        place_tile<BLOCKS * TILE_M, TILE_N, GROUP>(index, tiles_m, tiles_n, first_row, first_column);
        float sums[TILE_N / 2] = {};
        for (int done = 0; done < k; done += TILE_K, ++load) {
            int stage = load % STAGES;
            const T* a_tile = reinterpret_cast<const T*>(shared + stage * STAGE);
            const T* b_tile = a_tile + TILE_M * TILE_K;
            mbarrier_wait(&full[stage], load / STAGES % 2);
            wgmma_fence();
            multiply<T, TILE_N>(sums, a_tile + consumer * 64 * LINE, b_tile);
            wgmma_commit();
            wgmma_wait<1>();  // the product of the tile before is complete
            if (done > 0) release<BLOCKS>(&empty[(load - 1) % STAGES]);
        }
        wgmma_wait<0>();
        release<BLOCKS>(&empty[(load - 1) % STAGES]);
        int row = first_row + rank * TILE_M + consumer * 64;
        store_by_tma(c_map, places + consumer * HALF, sums, row, first_column);
    }
    if (threadIdx.x % WARP_GROUP == 0) tma_store_wait<0>();
    cluster_sync();  // until here the other thread block may write or arrive in this one's memory
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    return with_maps(a, b, c, m, n, k, TILE_M, stream, [=](CUtensorMap a_map, CUtensorMap b_map) {
        cudaError_t error = cudaFuncSetAttribute(
            matmul_cluster<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
        if (error != cudaSuccess) return error;
        CUtensorMap c_map;
        size_t stride = n;
        error = make_tensor_map(&c_map, c, {stride, static_cast<size_t>(m)}, &stride, {LINE, 64},
                                Swizzle::SPAN_128);
        if (error != cudaSuccess) return error;
        int blocks;
        error = one_per_sm(&blocks, BLOCKS * ceil_div(n, TILE_N) * ceil_div(m, BLOCKS * TILE_M));
        if (error != cudaSuccess) return error;
        blocks -= blocks % BLOCKS;  // whole clusters; none can run on a GPU with one SM
        if (blocks == 0) return cudaErrorInvalidConfiguration;
        matmul_cluster<T><<<blocks, THREADS, SHARED, stream>>>(a_map, b_map, c_map, m, n, k);
        return cudaGetLastError();
    });
}

extern "C" cudaError_t matmul_cluster_f16(const __half* a, const __half* b, __half* c, int m, int n,
                                      int k, cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_cluster_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                       __nv_bfloat16* c, int m, int n, int k,
                                       cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
