// Exercise 25.2: A tile of sums by wgmma.
// Your parts begin in lines 74 and 78 of this file.
//
// A thread block is one warp group, 128 threads. In each iteration it has copied a tile of a (128
// rows) and a tile of b (128 columns) to shared memory, 64 values of k each. Add the products to the
// sums: sums[0] are those of rows 0 to 63, sums[1] those of rows 64 to 127. wgmma runs beside the
// threads and accesses shared memory by another path than their stores do, so you must enforce the
// order: what has been stored must be visible to it, all threads must have stored, the sums must be
// complete before they are touched, and the tiles must have been read before the next iteration
// overwrites them. After the loop, store the sums.
//
// You have
// - `a_tile`, `b_tile`: T in shared memory: of a 128 lines, one per row; of b two parts of 64
//   columns, 64 lines each, one per value of k. A line is 64 elements (LINE)
// - `sums`: float[TILE_M / 64][TILE_N / 2]: this thread's sums, 0 at first
// - `multiply<T, TILE_N>(sums[i], a, b_tile)`: starts four wgmma: adds the products of the 64 rows
//   that begin at `a` with b_tile, for all 64 values of k
// - `matrix_descriptor(first, leading_bytes, stride_bytes, Swizzle::SPAN_128)`, `advance(descriptor,
//   bytes)`, `wgmma<T, TILE_N, false, true>(sums[i], a, b)`: what multiply consists of; two
//   descriptors and 16 values of k per wgmma
// - `fence_proxy_async()`: what this thread has stored in shared memory becomes visible to wgmma
// - `__syncthreads()`: all threads meet
// - `wgmma_fence()`: to be called before the first wgmma, after the sums were written
// - `wgmma_commit()`: closes a group: the wgmma started since the last commit
// - `wgmma_wait<PENDING>()`: waits until at most the PENDING newest groups are running
// - `store_sums<T, TILE_N>(c, sums[i], row, column, m, n)`: writes 64 rows of sums to c
// - `first_row`, `first_column`, `TILE_M`: where the tile of c begins; its rows, 128
//
// In a terminal: yaie check 25.2, yaie hint 25.2, yaie reset 25.2.

// Matrix product on Hopper, rung 1 of 8: a warp group multiplies tiles that lie in shared memory.
//
// Needs     sm_90a (wgmma)
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float16 or bfloat16; n and k must be multiples of 8 and
//           all addresses multiples of 16, or the launcher returns cudaErrorMisalignedAddress
// Owns      each thread block, which is one warp group: a tile of 128 × 128 elements of c; each
//           thread: 128 of them, in the registers where wgmma leaves them
// Compiled  164 registers per thread, none spilled (ptxas 13.0)
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
        // your lines
        // exercise 25.2 end
    }
    // exercise 25.2 begin: store the sums
    // your lines
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
