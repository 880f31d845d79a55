// Exercise 16.4: A warp's tile through ldmatrix.
// Your parts begin in lines 126 and 133 of this file.
//
// Write what a warp does in one step of 16 along k, in two regions. In `load_fragments`, the warp
// loads rows warp_row to warp_row + 63 of a's tile, columns step × 16 to step × 16 + 15, into
// `a_parts[set]`, and the same 16 rows of b's tile, columns warp_column to warp_column + 63, into
// `b_parts[set]`. One ldmatrix loads 16 × 16 numbers; load each of them once. In `multiply`, the
// warp multiplies each 16 × 16 part of a by each 16 × 8 part of b and adds the product to `sums`.
//
// You have
// - `a_tile`, `b_tile`: `const T*` in shared memory: 256 × 32 numbers of a, 32 × 128 of b, in chunks
//   of 16 bytes
// - `swizzle<CHUNKS>(row, chunk)`: the place of a chunk in its tile, counted in chunks; a row of a's
//   tile has `A_CHUNKS` (4) of them, a row of b's `B_CHUNKS` (16)
// - `CHUNK`: 8, the numbers in a chunk
// - `warp_row`, `warp_column`: where the warp's 64 rows of a's tile and 64 columns of b's tile
//   begin, counted in numbers
// - `lane`: 0 to 31
// - `set`, `step`: 0 or 1 each: which registers are loaded, and which 16 of the tile's 32 columns of
//   a and rows of b
// - `ldmatrix_x4(to, row)`: loads four matrices of 8 × 8 into `uint32_t to[4]`, a register for each.
//   Lane l passes the address of row l % 8 of matrix l / 8
// - `ldmatrix_x4_trans(to, row)`: the same, with each matrix transposed
// - `TILES_16`, `TILES_8`: 4 and 8: the warp's tiles of 16 rows and of 8 columns
// - `a_parts[set][i]`: `uint32_t[4]`: rows 16 × i on, as four matrices: upper left, lower left,
//   upper right, lower right
// - `b_parts[set][j]`: `uint32_t[4]`: columns 16 × j on, two tiles of 8 columns: of each the upper
//   matrix, then the lower
// - `sums[i][j]`: `float[4]`: rows 16 × i on, columns 8 × j on, of the warp's part of c
// - `mma_16x8x16<T>(c, a, b0, b1)`: c += a b for `float c[4]`, `uint32_t a[4]` and the upper and
//   lower matrix of b
//
// In a terminal: yaie check 16.4, yaie hint 16.4, yaie reset 16.4.

// Matrix product, rung 5 of 5: tensor cores that do not wait for memory; the kernel that the engine
// uses.
//
// Needs     sm_80 (cp.async, ldmatrix, mma.sync m16n8k16) and 72 KiB of shared memory
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float16 or bfloat16; n and k must be multiples of 8 and
//           all addresses multiples of 16, or the launcher returns cudaErrorMisalignedAddress
// Owns      each thread block of 8 warps: a tile of 256 × 128 elements of c; each warp: 64 × 64 of
//           it; each lane: 128 elements, in the registers where mma.sync leaves them
#include "mma.cuh"

constexpr int TILE_M = 256, TILE_N = 128, TILE_K = 32;  // per thread block
constexpr int STAGES = 3;
constexpr int WARP_M = 64, WARP_N = 64;
constexpr int MIN_BLOCKS = 1;  // thread blocks per streaming multiprocessor that must fit
constexpr int GROUP = 16;      // rows of tiles that consecutive thread blocks share

constexpr int WARPS_N = TILE_N / WARP_N, WARPS = TILE_M / WARP_M * WARPS_N;
constexpr int THREADS = WARPS * WARP;
constexpr int STEPS = TILE_K / 16;
constexpr int CHUNK = 8;  // elements in 16 bytes
// Chunks per row of each tile, and of a warp's part of c.
constexpr int A_CHUNKS = TILE_K / CHUNK, B_CHUNKS = TILE_N / CHUNK, C_CHUNKS = WARP_N / CHUNK;
constexpr int STAGE = TILE_K * (TILE_M + TILE_N);  // elements
constexpr int SHARED = STAGES * STAGE > TILE_M * TILE_N ? STAGES * STAGE : TILE_M * TILE_N;
constexpr int TILES_16 = WARP_M / 16, TILES_8 = WARP_N / 8;  // per warp's part of c

static_assert(STEPS % 2 == 0, "two sets of fragments alternate");
static_assert(TILE_M * A_CHUNKS % THREADS == 0 && TILE_K * B_CHUNKS % THREADS == 0,
              "whole iterations");
static_assert(THREADS % A_CHUNKS == 0 && THREADS % B_CHUNKS == 0, "a thread stays in its column");

// The place of chunk `chunk` of row `row` in a tile in shared memory, counted in chunks. A row has
// CHUNKS 16-byte chunks, a power of two. Shared memory serves eight lanes at a time. Their chunks
// lie in eight different groups of four banks both when they are adjacent in a row (eight from a
// multiple of 8 on, or a whole shorter row) and when they are the same chunk of 8 successive rows.
template <int CHUNKS>
__host__ __device__ __forceinline__ int swizzle(int row, int chunk) {
    int place = 0;
    // exercise 16.3
#include "../solutions/16_tiled_matmul/3_part_1.cuh"
    return place;
}

template <typename T>
__global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    matmul_mma(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n,
               int k) {
    extern __shared__ __align__(128) unsigned char shared[];
    T* stages = reinterpret_cast<T*>(shared);

    // Consecutive thread blocks go down the GROUP rows of a group, then on to the next column.
    int tiles_m = ceil_div(m, TILE_M), tiles_n = ceil_div(n, TILE_N);
    int first = blockIdx.x / (GROUP * tiles_n) * GROUP, within = blockIdx.x % (GROUP * tiles_n);
    int height = min(GROUP, tiles_m - first);
    int first_row = (first + within % height) * TILE_M, first_column = within / height * TILE_N;

    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int warp_row = warp / WARPS_N * WARP_M, warp_column = warp % WARPS_N * WARP_N;

    // What this thread copies: one chunk in every A_STEP-th row of a tile of a; likewise for b.
    constexpr int A_STEP = THREADS / A_CHUNKS, B_STEP = THREADS / B_CHUNKS;
    int a_row = threadIdx.x / A_CHUNKS, a_chunk = threadIdx.x % A_CHUNKS;
    int b_row = threadIdx.x / B_CHUNKS, b_chunk = threadIdx.x % B_CHUNKS;
    const T* a_from = a + (size_t)(first_row + a_row) * k + a_chunk * CHUNK;
    const T* b_from = b + (size_t)b_row * n + first_column + b_chunk * CHUNK;
    int rows = m - first_row - a_row;  // rows of a from a_row on
    bool b_inside = first_column + b_chunk * CHUNK < n;

    auto copy_tiles = [&](int tile, int place) {
        T* to = stages + place * STAGE;
        int left = k - tile * TILE_K;  // what remains of k; past it the tile is zero
        bool a_inside = a_chunk * CHUNK < left;
#pragma unroll
        for (int i = 0; i < TILE_M; i += A_STEP)
            cp_async_16(to + swizzle<A_CHUNKS>(a_row + i, a_chunk) * CHUNK, a_from + (size_t)i * k,
                        a_inside && i < rows);
        to += TILE_M * TILE_K;
#pragma unroll
        for (int i = 0; i < TILE_K; i += B_STEP)
            cp_async_16(to + swizzle<B_CHUNKS>(b_row + i, b_chunk) * CHUNK, b_from + (size_t)i * n,
                        b_inside && b_row + i < left);
        a_from += TILE_K;
        b_from += (size_t)TILE_K * n;
        cp_async_commit();  // one group per tile, even past k, so that groups can be counted
    };

    uint32_t a_parts[2][TILES_16][4], b_parts[2][TILES_8 / 2][4];
    auto load_fragments = [&](int set, int stage, int step) {
        const T* a_tile = stages + stage * STAGE;
        const T* b_tile = a_tile + TILE_M * TILE_K;
        // exercise 16.4 begin: the fragments of this warp's rows of a and columns of b
        // your lines
        // exercise 16.4 end
    };

    float sums[TILES_16][TILES_8][4] = {};
    auto multiply = [&](int set) {
        // exercise 16.4 begin: every fragment of a times every fragment of b
        // your lines
        // exercise 16.4 end
    };

    int tiles = ceil_div(k, TILE_K);
    // exercise 16.5: multiply tile after tile, while the copies of the next ones are in flight
#include "../solutions/16_tiled_matmul/5_part_1.cuh"

    // Write c through the same shared memory: a lane stores 16 bytes, 8 lanes a 128-byte line.
    T* part = stages + warp * WARP_M * WARP_N;
    int group = lane / 4, pair = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILES_16; ++i)
#pragma unroll
        for (int j = 0; j < TILES_8; ++j)
#pragma unroll
            for (int below = 0; below < 2; ++below) {
                T* to = part + swizzle<C_CHUNKS>(i * 16 + below * 8 + group, j) * CHUNK + pair;
                *reinterpret_cast<uint32_t*>(to) =
                    pack2<T>(sums[i][j][below * 2], sums[i][j][below * 2 + 1]);
            }
    __syncwarp();
    int chunk = lane % C_CHUNKS, column = first_column + warp_column + chunk * CHUNK;
    for (int row = lane / C_CHUNKS; row < WARP_M; row += WARP / C_CHUNKS) {
        int c_row = first_row + warp_row + row;
        if (c_row < m && column < n)
            store16(c + (size_t)c_row * n + column,
                    load16(part + swizzle<C_CHUNKS>(row, chunk) * CHUNK));
    }
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    if (m == 0 || n == 0) return cudaSuccess;
    if (n % CHUNK || k % CHUNK || !aligned16(a, b, c)) return cudaErrorMisalignedAddress;
    int bytes = SHARED * sizeof(T), tiles = ceil_div(m, TILE_M) * ceil_div(n, TILE_N);
    cudaError_t error = cudaFuncSetAttribute(
        matmul_mma<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    matmul_mma<T><<<tiles, THREADS, bytes, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}

extern "C" cudaError_t matmul_mma_f16(const __half* a, const __half* b, __half* c, int m, int n,
                                      int k, cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_mma_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                       __nv_bfloat16* c, int m, int n, int k,
                                       cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
