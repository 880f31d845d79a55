// Solution of exercise 25.2: A tile of sums by wgmma.
//
// A thread block is one warp group, 128 threads. In each iteration it has copied a tile of a (128
// rows) and a tile of b (128 columns) to shared memory, 64 values of k each. Add the products to the
// sums: sums[0] are those of rows 0 to 63, sums[1] those of rows 64 to 127. wgmma runs beside the
// threads and accesses shared memory by another path than their stores do, so you must enforce the
// order: what has been stored must be visible to it, all threads must have stored, the sums must be
// complete before they are touched, and the tiles must have been read before the next iteration
// overwrites them. After the loop, store the sums.
//
// Generated from matmul_wgmma in csrc/matmul/hopper/wgmma.cu.
// Edit it there, and run `python -m yaie.course build`.

// Matrix product on Hopper, rung 1 of 8: a warp group multiplies tiles that lie in shared memory.
//
// Needs     sm_90a (wgmma)
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float16 or bfloat16; n and k must be multiples of 8 and
//           all addresses multiples of 16, or the launcher returns cudaErrorMisalignedAddress
// Owns      each thread block, which is one warp group: a tile of 128 × 128 elements of c; each
//           thread: 128 of them, in the registers where wgmma leaves them
// Moves     for each tile of c, 128 rows of a and 128 columns of b: m × n × k / 64 elements, which
//           is 1 / 64 byte per operation; through registers into shared memory
// Compiled  164 registers per thread, none spilled (ptxas 13.0)
// Oracle    a b in float64, in tests/test_kernels.py
// Idea      wgmma takes both matrices from shared memory and holds only the sums in registers: no
//           ldmatrix, and one instruction per 64 × 128 × 16 products instead of 64. It runs beside
//           the threads, which wait for it before they touch the sums.
#include "matmul/hopper/tiles.cuh"

constexpr int TILE_M = 128, TILE_N = 128;
constexpr int CHUNK = 8;  // elements in 16 bytes

// Copy a tile of `rows` lines from `from`, with zeros past `rows_left` and `columns_left`. The chunks
// of a line change places as SPAN_128 has them.
template <typename T>
__device__ __forceinline__ void copy_tile(T* tile, const T* from, size_t stride, int rows,
                                          int rows_left, int columns_left) {
    int chunk = threadIdx.x % 8;
    for (int row = threadIdx.x / 8; row < rows; row += WARP_GROUP / 8) {
        Vec<T> held = {};
        if (row < rows_left && chunk * CHUNK < columns_left)
            held = load16(from + row * stride + chunk * CHUNK);
        store16(tile + row * LINE + (chunk ^ row % 8) * CHUNK, held);
    }
}

template <typename T>
__global__ void __launch_bounds__(WARP_GROUP)
    matmul_wgmma(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n,
                 int k) {
    extern __shared__ __align__(1024) unsigned char shared[];
    T* a_tile = reinterpret_cast<T*>(shared);
    T* b_tile = a_tile + TILE_M * TILE_K;
    int first_row = blockIdx.y * TILE_M, first_column = blockIdx.x * TILE_N;

    float sums[TILE_M / 64][TILE_N / 2] = {};
    for (int done = 0; done < k; done += TILE_K) {
        copy_tile(a_tile, a + (size_t)first_row * k + done, k, TILE_M, m - first_row, k - done);
        for (int column = 0; column < TILE_N; column += LINE)
            copy_tile(b_tile + column * TILE_K, b + (size_t)done * n + first_column + column, n,
                      TILE_K, k - done, n - first_column - column);
        // exercise 25.2 begin: sums[i] += the products of 64 rows of a_tile with b_tile
        fence_proxy_async();  // wgmma reads what these threads have stored
        __syncthreads();
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < TILE_M / 64; ++i)
            multiply<T, TILE_N>(sums[i], a_tile + i * 64 * LINE, b_tile);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();
        // exercise 25.2 end
    }
    // exercise 25.2 begin: store the sums
#pragma unroll
    for (int i = 0; i < TILE_M / 64; ++i)
        store_sums<T, TILE_N>(c, sums[i], first_row + i * 64, first_column, m, n);
    // exercise 25.2 end
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    if (m == 0 || n == 0) return cudaSuccess;
    if (n % CHUNK || k % CHUNK || !aligned16(a, b, c)) return cudaErrorMisalignedAddress;
    constexpr int bytes = (TILE_M + TILE_N) * TILE_K * sizeof(T);
    dim3 grid(ceil_div(n, TILE_N), ceil_div(m, TILE_M));
    matmul_wgmma<T><<<grid, WARP_GROUP, bytes, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}

extern "C" cudaError_t matmul_wgmma_f16(const __half* a, const __half* b, __half* c, int m, int n,
                                        int k, cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_wgmma_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                         __nv_bfloat16* c, int m, int n, int k,
                                         cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
