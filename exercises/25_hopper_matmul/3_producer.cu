// Exercise 25.3: Producer and consumer.
// Your parts begin in lines 79, 90 and 94 of this file.
//
// Two warp groups share a ring of STAGES stages in shared memory. One thread of the first, the
// producer, loads the tiles of a and b, tile t to stage t % STAGES. The 128 threads of the second,
// the consumer, multiply them. Write what both do for one tile, and what the consumer does after the
// last. A phase of full[stage] needs one arrival, the producer's, and the bytes that it expects; a
// phase of empty[stage] needs an arrival of each of the 128 threads. While the wgmma of a tile run,
// the consumer may already wait for the next tile: it releases a stage one iteration later, when the
// wgmma that read it are known to be done.
//
// You have
// - `tile`, `stage`, `STAGES`: ints: the number of the tile along k; its stage, tile % STAGES; 6
// - `full[stage]`, `empty[stage]`: the stage's mbarriers: its tiles have arrived; they have been
//   multiplied. Reports call them bytes 196,608 + 8 × stage and 196,656 + 8 × stage of `shared`
// - `mbarrier_wait(&barrier, parity)`: waits until the phase of this parity is complete; during the
//   first phase, whose parity is 0, a wait for parity 1 returns immediately
// - `mbarrier_arrive_expect(&barrier, bytes)`, `mbarrier_arrive(&barrier)`: arrive; the first has
//   the phase wait for this many bytes, too
// - `STAGE`: the bytes of a stage, one tile of a and one of b
// - `tma_load(to, map, &barrier, x, y)`: starts the load of the box at column x and row y of a
//   matrix; `barrier` counts its bytes
// - `a_map`, `b_map`: of a, [m, k], in boxes of 128 rows × 64 columns; of b, [k, n], in boxes of 64
//   rows × 64 columns, half a tile
// - `a_tile`, `b_tile`: the stage's tiles: of a 128 lines of LINE elements; of b two parts of 64
//   columns, one after the other, LINE × TILE_K elements each
// - `first_row`, `first_column`: of c, where this thread block's tile begins
// - `TILE_M`, `TILE_N`, `TILE_K`, `LINE`: 128 rows and 128 columns of a tile of c; 64 values of k;
//   64 elements of a line
// - `sums`: float[TILE_M / 64][TILE_N / 2]: this thread's sums, 0 at first
// - `multiply<T, TILE_N>(sums[i], a_tile + i * 64 * LINE, b_tile)`: starts the wgmma of 64 rows, for
//   i = 0 and 1
// - `wgmma_fence()`, `wgmma_commit()`: before the first wgmma; after the last, to close their group
// - `wgmma_wait<PENDING>()`: waits until at most the PENDING newest groups are running
// - `store_sums<T, TILE_N>(c, sums[i], row, column, m, n)`: writes 64 rows of sums to c
//
// In a terminal: yaie check 25.3, yaie hint 25.3, yaie reset 25.3.

// Matrix product on Hopper, rung 4 of 8: one warp group loads, another multiplies.
//
// Needs     sm_90a (wgmma, TMA)
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float16 or bfloat16; n and k must be multiples of 8 and
//           all addresses multiples of 16, or the launcher returns cudaErrorMisalignedAddress
// Owns      each thread block: a tile of 128 × 128 elements of c; each thread of the consumer: 128
//           of them, in the registers where wgmma leaves them
// Compiled  154 registers per thread, none spilled (ptxas 13.0)
#include "matmul/hopper/tiles.cuh"

constexpr int TILE_M = 128, TILE_N = 128;
constexpr int STAGES = 6;
constexpr int THREADS = 2 * WARP_GROUP;  // a producer and a consumer
constexpr int A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_K * TILE_N * 2;
constexpr int STAGE = A_BYTES + B_BYTES, SHARED = STAGES * (STAGE + 2 * 8);

template <typename T>
__global__ void __launch_bounds__(THREADS)
    matmul_producer(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
               T* __restrict__ c, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    uint64_t* full = reinterpret_cast<uint64_t*>(shared + STAGES * STAGE);
    uint64_t* empty = full + STAGES;
    int first_row = blockIdx.y * TILE_M, first_column = blockIdx.x * TILE_N;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&full[stage], 1);
            mbarrier_init(&empty[stage], WARP_GROUP);
        }
        fence_mbarrier_init();
    }
    __syncthreads();

    int tiles = ceil_div(k, TILE_K);
    if (threadIdx.x < WARP_GROUP) {  // the producer, of which one thread is enough
        for (int tile = 0; tile < tiles && threadIdx.x == 0; ++tile) {
            int stage = tile % STAGES;
            T* a_tile = reinterpret_cast<T*>(shared + stage * STAGE);
            T* b_tile = a_tile + TILE_M * TILE_K;
            // exercise 25.3 begin: load this tile once its stage is empty
            // your lines
            // exercise 25.3 end
        }
        return;
    }
    float sums[TILE_M / 64][TILE_N / 2] = {};
    for (int tile = 0; tile < tiles; ++tile) {
        int stage = tile % STAGES;
        const T* a_tile = reinterpret_cast<const T*>(shared + stage * STAGE);
        const T* b_tile = a_tile + TILE_M * TILE_K;
        // exercise 25.3 begin: multiply this tile once it is there, and release the one before
        // your lines
        // exercise 25.3 end
    }
    // exercise 25.3 begin: store the sums
    // your lines
    // exercise 25.3 end
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    return with_maps(a, b, c, m, n, k, TILE_M, stream, [=](CUtensorMap a_map, CUtensorMap b_map) {
        cudaError_t error = cudaFuncSetAttribute(
            matmul_producer<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
        if (error != cudaSuccess) return error;
        dim3 grid(ceil_div(n, TILE_N), ceil_div(m, TILE_M));
        matmul_producer<T><<<grid, THREADS, SHARED, stream>>>(a_map, b_map, c, m, n, k);
        return cudaGetLastError();
    });
}

extern "C" cudaError_t matmul_producer_f16(const __half* a, const __half* b, __half* c, int m, int n,
                                      int k, cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_producer_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                       __nv_bfloat16* c, int m, int n, int k,
                                       cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
