// Matrix product on Hopper, rung 6 of 8: thread blocks that stay, and an order of tiles for the L2 cache.
//
// Needs     sm_90a (wgmma, TMA)
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float16 or bfloat16; n and k must be multiples of 8 and
//           all addresses multiples of 16, or the launcher returns cudaErrorMisalignedAddress
// Owns      each thread block, one per SM: every gridDim.x-th tile of 128 × 256 elements of c; each
//           of its two consumers: 64 rows of a tile
// Moves     for each tile of c, 128 rows of a and 256 columns of b: m × n × k × 3 / 256 elements,
//           which is 3 / 256 byte per operation; from shared memory 5 / 256
// Compiled  168 registers per thread, none spilled (ptxas 13.0)
// Oracle    a b in float64, in tests/test_kernels.py
// Idea      a thread block that ends leaves its SM idle until the next has set up its barriers and
//           loaded its first tiles. Here one stays on each SM: while the consumers store a tile,
//           the producer already loads the next. Tiles that run at the same time lie close together
//           in c: they share rows of a and columns of b in the L2 cache.
#include "matmul/hopper/tiles.cuh"

constexpr int TILE_M = 128, TILE_N = 256;
constexpr int STAGES = 4;
constexpr int GROUP = 16;  // rows of tiles that consecutive tiles share
constexpr int CONSUMERS = TILE_M / 64, THREADS = (1 + CONSUMERS) * WARP_GROUP;
constexpr int A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_K * TILE_N * 2;
constexpr int STAGE = A_BYTES + B_BYTES, SHARED = STAGES * (STAGE + 2 * 8);

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    matmul_persistent(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
               T* __restrict__ c, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    uint64_t* full = reinterpret_cast<uint64_t*>(shared + STAGES * STAGE);
    uint64_t* empty = full + STAGES;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&full[stage], 1);
            mbarrier_init(&empty[stage], CONSUMERS * WARP_GROUP);
        }
        fence_mbarrier_init();
    }
    __syncthreads();

    int tiles_m = ceil_div(m, TILE_M), tiles_n = ceil_div(n, TILE_N), first_row, first_column;
    int load = 0;  // tiles of a and b so far: which stage of the ring, and which phase of its barriers
    if (threadIdx.x < WARP_GROUP) {  // the producer, of which one thread is enough
        decrease_registers<40>();
        if (threadIdx.x > 0) return;
        for (int index = blockIdx.x; index < tiles_m * tiles_n; index += gridDim.x) {
            place_tile<TILE_M, TILE_N, GROUP>(index, tiles_m, tiles_n, first_row, first_column);
            for (int done = 0; done < k; done += TILE_K, ++load) {
                int stage = load % STAGES;
                T* a_tile = reinterpret_cast<T*>(shared + stage * STAGE);
                T* b_tile = a_tile + TILE_M * TILE_K;
                mbarrier_wait(&empty[stage], load / STAGES % 2 ^ 1);  // the first time immediately
                mbarrier_arrive_expect(&full[stage], STAGE);
                tma_load(a_tile, a_map, &full[stage], done, first_row);
                for (int column = 0; column < TILE_N; column += LINE)
                    tma_load(b_tile + column * TILE_K, b_map, &full[stage], first_column + column,
                             done);
            }
        }
        return;
    }
    increase_registers<232>();
    int consumer = threadIdx.x / WARP_GROUP - 1;
    for (int index = blockIdx.x; index < tiles_m * tiles_n; index += gridDim.x) {
        place_tile<TILE_M, TILE_N, GROUP>(index, tiles_m, tiles_n, first_row, first_column);
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
            if (done > 0) mbarrier_arrive(&empty[(load - 1) % STAGES]);
        }
        wgmma_wait<0>();
        mbarrier_arrive(&empty[(load - 1) % STAGES]);
        store_sums<T, TILE_N>(c, sums, first_row + consumer * 64, first_column, m, n);
    }
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    return with_maps(a, b, c, m, n, k, TILE_M, stream, [=](CUtensorMap a_map, CUtensorMap b_map) {
        cudaError_t error = cudaFuncSetAttribute(
            matmul_persistent<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
        if (error != cudaSuccess) return error;
        int blocks;
        error = one_per_sm(&blocks, ceil_div(n, TILE_N) * ceil_div(m, TILE_M));
        if (error != cudaSuccess) return error;
        matmul_persistent<T><<<blocks, THREADS, SHARED, stream>>>(a_map, b_map, c, m, n, k);
        return cudaGetLastError();
    });
}

extern "C" cudaError_t matmul_persistent_f16(const __half* a, const __half* b, __half* c, int m, int n,
                                      int k, cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_persistent_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                       __nv_bfloat16* c, int m, int n, int k,
                                       cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
