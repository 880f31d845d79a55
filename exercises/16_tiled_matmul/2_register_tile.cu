// Exercise 16.2: 64 sums in a thread's registers.
// Your part begins in line 90 of this file.
//
// The tiles of a and b have been written: a_tile[step] is a column of a, 128 elements long, and
// b_tile[step] a row of b. In each of the DEPTH steps a thread takes eight elements of a_tile, four
// from y and four from HALF + y, and eight of b_tile, four from x and four from HALF + x, by load16,
// and adds all 64 products to `sums[down][across][i][j]`: `down` and `i` say which of a's, `across`
// and `j` which of b's. Place both barriers, too: this is in the middle of the loop over k.
//
// You have
// - `a_tile`, `b_tile`: float in shared memory, `[DEPTH][128]`: column `step` of a's tile, row
//   `step` of b's
// - `x`, `y`, `HALF`: where the thread's first four columns and rows begin; 64, the distance to its
//   second four
// - `load16(&a_tile[step][i])`: returns a `Vec<float>` v of four numbers, `v[0]` to `v[3]`
// - `sums[down][across][i][j]`: `float[2][2][QUAD][QUAD]`, the thread's own; QUAD is 4
// - `__syncthreads()`: all threads meet
//
// In a terminal: yaie check 16.2, yaie hint 16.2, yaie reset 16.2.

// Matrix product, rung 3 of 5: 8 × 8 elements per thread, in its registers.
//
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float32, float16 or bfloat16
// Owns      each thread block of 256 threads: a tile of 128 × 128 elements of c; each thread: four
//           squares of 4 × 4 elements of it, 64 elements apart
#include "common.cuh"

constexpr int TILE = 128;            // rows and columns of c, per thread block
constexpr int THREADS = 256;         // 16 × 16
constexpr int QUAD = 4, HALF = 64;   // the side of a thread's squares, and their distance
constexpr int PADDED = TILE + QUAD;

// The 16-byte chunk of a row that goes to shared memory; its elements from `valid` on are 0.
template <typename T, bool WIDE>
static __device__ __forceinline__ Vec<T> load_chunk(const T* from, int valid) {
    Vec<T> chunk;
    if (WIDE && valid > 0) return load16(from);
    for (int i = 0; i < Vec<T>::SIZE; ++i) chunk[i] = i < valid ? from[i] : from_float<T>(0.0f);
    return chunk;
}

// Store four adjacent elements of a row of c, of which the first `valid` exist.
template <typename T, bool WIDE>
static __device__ __forceinline__ void store_quad(T* to, const float (&sums)[QUAD], int valid) {
    alignas(16) T items[QUAD];
    for (int i = 0; i < QUAD; ++i) items[i] = from_float<T>(sums[i]);
    if (WIDE && valid >= QUAD && sizeof(T) == 4) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<uint4*>(items);
    } else if (WIDE && valid >= QUAD) {
        *reinterpret_cast<uint2*>(to) = *reinterpret_cast<uint2*>(items);
    } else {
        for (int i = 0; i < QUAD; ++i)
            if (i < valid) to[i] = items[i];
    }
}

template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS, 2)
    matmul_register_tile(const T* a, const T* b, T* c, int m, int n, int k) {
    constexpr int SIZE = Vec<T>::SIZE, DEPTH = 2 * SIZE;  // of k, per tile
    static_assert(TILE * DEPTH == THREADS * SIZE, "a thread loads one chunk of each tile");
    __shared__ alignas(16) float a_tile[DEPTH][PADDED], b_tile[DEPTH][TILE];
    int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    // Where the thread's first square begins; a warp has 4 rows of 8 squares.
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int x = (warp % 2 * 8 + lane % 8) * QUAD, y = (warp / 2 * 4 + lane / 8) * QUAD;
    float sums[2][2][QUAD][QUAD] = {};  // by square, down and across; then by row and column

    // The chunks that the thread loads: of a row of a, and of a row of b.
    int a_row = threadIdx.x / 2, a_column = threadIdx.x % 2 * SIZE;
    int b_row = threadIdx.x / (TILE / SIZE), b_column = threadIdx.x % (TILE / SIZE) * SIZE;
    Vec<T> a_chunk, b_chunk;
    auto load_chunks = [&](int start) {
        int row = first_row + a_row, column = start + a_column;
        a_chunk = load_chunk<T, WIDE>(a + (size_t)row * k + column, row < m ? k - column : 0);
        row = start + b_row, column = first_column + b_column;
        b_chunk = load_chunk<T, WIDE>(b + (size_t)row * n + column, row < k ? n - column : 0);
    };

    load_chunks(0);
    for (int start = 0; start < k; start += DEPTH) {
        for (int i = 0; i < SIZE; ++i) a_tile[a_column + i][a_row] = to_float(a_chunk[i]);
        for (int i = 0; i < SIZE; i += QUAD) {
            Vec<float> quad;
            for (int j = 0; j < QUAD; ++j) quad[j] = to_float(b_chunk[i + j]);
            store16(&b_tile[b_row][b_column + i], quad);
        }
        load_chunks(start + DEPTH);  // they arrive while these tiles are multiplied
        // exercise 16.2 begin
        // your lines
        // exercise 16.2 end
    }

#pragma unroll  // otherwise the sums are indexed at run time, and so placed in local memory
    for (int down = 0; down < 2; ++down) {
#pragma unroll
        for (int i = 0; i < QUAD; ++i) {
            int row = first_row + down * HALF + y + i;
#pragma unroll
            for (int across = 0; across < 2; ++across) {
                int column = first_column + across * HALF + x;
                store_quad<T, WIDE>(c + (size_t)row * n + column, sums[down][across][i],
                                    row < m ? n - column : 0);
            }
        }
    }
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    if (m == 0 || n == 0) return cudaSuccess;
    dim3 grid(ceil_div(n, TILE), ceil_div(m, TILE));
    bool wide = n % Vec<T>::SIZE == 0 && k % Vec<T>::SIZE == 0 && aligned16(a, b, c);
    if (wide)
        matmul_register_tile<T, true><<<grid, THREADS, 0, stream>>>(a, b, c, m, n, k);
    else
        matmul_register_tile<T, false><<<grid, THREADS, 0, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}

extern "C" cudaError_t matmul_register_tile_f32(const float* a, const float* b,
                                                float* c, int m, int n, int k,
                                                cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_register_tile_f16(const __half* a, const __half* b,
                                                __half* c, int m, int n, int k,
                                                cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_register_tile_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                                 __nv_bfloat16* c, int m, int n, int k,
                                                 cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
