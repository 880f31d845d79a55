// Matrix product on Hopper, rung 2 of 8: one thread asks, and TMA copies the tiles.
//
// Needs     sm_90a (wgmma, TMA)
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float16 or bfloat16; n and k must be multiples of 8 and
//           all addresses multiples of 16, or the launcher returns cudaErrorMisalignedAddress
// Owns      each thread block, which is one warp group: a tile of 128 × 128 elements of c; each
//           thread: 128 of them, in the registers where wgmma leaves them
// Moves     for each tile of c, 128 rows of a and 128 columns of b: m × n × k / 64 elements, which
//           is 1 / 64 byte per operation; straight into shared memory
// Compiled  154 registers per thread, none spilled (ptxas 13.0)
// Oracle    a b in float64, in tests/test_kernels.py
// Idea      a tensor map describes a matrix once, on the host. A thread then names a box of it, and
//           TMA computes the addresses, fills in zeros past the edges, swizzles, and counts the
//           bytes on an mbarrier. No registers hold tiles, and no proxy fence is needed: both TMA
//           and wgmma use the asynchronous proxy.
#include "matmul/hopper/tiles.cuh"

constexpr int TILE_M = 128, TILE_N = 128;
constexpr int A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_K * TILE_N * 2;

template <typename T>
__global__ void __launch_bounds__(WARP_GROUP)
    matmul_tma(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
               T* __restrict__ c, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    T* a_tile = reinterpret_cast<T*>(shared);
    T* b_tile = reinterpret_cast<T*>(shared + A_BYTES);
    uint64_t* full = reinterpret_cast<uint64_t*>(shared + A_BYTES + B_BYTES);
    int first_row = blockIdx.y * TILE_M, first_column = blockIdx.x * TILE_N;
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();

    float sums[TILE_M / 64][TILE_N / 2] = {};
    for (int tile = 0; tile < ceil_div(k, TILE_K); ++tile) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect(full, A_BYTES + B_BYTES);
            tma_load(a_tile, a_map, full, tile * TILE_K, first_row);
            for (int column = 0; column < TILE_N; column += LINE)
                tma_load(b_tile + column * TILE_K, b_map, full, first_column + column,
                         tile * TILE_K);
        }
        mbarrier_wait(full, tile % 2);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < TILE_M / 64; ++i)
            multiply<T, TILE_N>(sums[i], a_tile + i * 64 * LINE, b_tile);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TILE_M / 64; ++i)
        store_sums<T, TILE_N>(c, sums[i], first_row + i * 64, first_column, m, n);
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    return with_maps(a, b, c, m, n, k, TILE_M, stream, [=](CUtensorMap a_map, CUtensorMap b_map) {
        constexpr int bytes = A_BYTES + B_BYTES + 1024;
        dim3 grid(ceil_div(n, TILE_N), ceil_div(m, TILE_M));
        matmul_tma<T><<<grid, WARP_GROUP, bytes, stream>>>(a_map, b_map, c, m, n, k);
        return cudaGetLastError();
    });
}

extern "C" cudaError_t matmul_tma_f16(const __half* a, const __half* b, __half* c, int m, int n,
                                      int k, cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_tma_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                       __nv_bfloat16* c, int m, int n, int k,
                                       cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
