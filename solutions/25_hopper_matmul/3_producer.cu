// Solution of exercise 25.3: Producer and consumer.
//
// Two warp groups share a ring of STAGES stages in shared memory. One thread of the first, the
// producer, loads the tiles of a and b, tile t to stage t % STAGES. The 128 threads of the second,
// the consumer, multiply them. Write what both do for one tile, and what the consumer does after the
// last. A phase of full[stage] needs one arrival, the producer's, and the bytes that it expects; a
// phase of empty[stage] needs an arrival of each of the 128 threads. While the wgmma of a tile run,
// the consumer may already wait for the next tile: it releases a stage one iteration later, when the
// wgmma that read it are known to be done.
//
// Generated from matmul_producer in csrc/matmul/hopper/producer.cu.
// Edit it there, and run `python -m yaie.course build`.

// Matrix product on Hopper, rung 4 of 8: one warp group loads, another multiplies.
//
// Needs     sm_90a (wgmma, TMA)
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float16 or bfloat16; n and k must be multiples of 8 and
//           all addresses multiples of 16, or the launcher returns cudaErrorMisalignedAddress
// Owns      each thread block: a tile of 128 × 128 elements of c; each thread of the consumer: 128
//           of them, in the registers where wgmma leaves them
// Moves     for each tile of c, 128 rows of a and 128 columns of b: m × n × k / 64 elements, which
//           is 1 / 64 byte per operation; straight into shared memory
// Compiled  154 registers per thread, none spilled (ptxas 13.0)
// Oracle    a b in float64, in tests/test_kernels.py
// Idea      a warp group that loads never waits for products, and one that multiplies never waits
//           for an empty stage: the consumer's loop has nothing left but products, and the producer
//           is always STAGES tiles ahead of it.
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
            mbarrier_wait(&empty[stage], tile / STAGES % 2 ^ 1);  // the first time immediately
            mbarrier_arrive_expect(&full[stage], STAGE);
            tma_load(a_tile, a_map, &full[stage], tile * TILE_K, first_row);
            for (int column = 0; column < TILE_N; column += LINE)
                tma_load(b_tile + column * TILE_K, b_map, &full[stage], first_column + column,
                         tile * TILE_K);
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
        mbarrier_wait(&full[stage], tile / STAGES % 2);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < TILE_M / 64; ++i)
            multiply<T, TILE_N>(sums[i], a_tile + i * 64 * LINE, b_tile);
        wgmma_commit();
        wgmma_wait<1>();  // the product of the tile before is complete
        if (tile > 0) mbarrier_arrive(&empty[(tile - 1) % STAGES]);
        // exercise 25.3 end
    }
    // exercise 25.3 begin: store the sums
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < TILE_M / 64; ++i)
        store_sums<T, TILE_N>(c, sums[i], first_row + i * 64, first_column, m, n);
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
