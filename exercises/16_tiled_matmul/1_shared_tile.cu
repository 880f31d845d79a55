// Exercise 16.1: A tile of c through tiles of a and b.
// Your part begins in line 35 of this file.
//
// A thread block of 32 × 32 threads computes a tile of 32 × 32 elements of c = a b; the thread's own
// is in `row` and `column`. Walk along k in steps of 32: bring a tile of a to a_tile and a tile of b
// to b_tile, one element of each per thread, wait, add 32 products to the thread's sum, wait, go on.
// Then write the sum to c, rounded by `from_float<T>`. m, n and k are any numbers: beyond the edges
// of a and b there are zeros. A matrix may have more than 2³¹ elements, so its indices need 64 bits.
//
// You have
// - `a`, `b`, `c`: `[m, k]`, `[k, n]` and `[m, n]` of type T, one row after the other
// - `a_tile`, `b_tile`: float in shared memory, `[TILE][TILE]`; TILE is 32
// - `x`, `y`: 0 to 31 each: this thread's column and row in the tile
// - `row`, `column`: its row and column in c; they may lie outside
// - `to_float(value)`, `from_float<T>(value)`: from T to float, and back, rounded
// - `size_t`: an unsigned integer of 64 bits; `(size_t)row * k` is computed in 64 bits
// - `__syncthreads()`: all threads meet
//
// In a terminal: yaie check 16.1, yaie hint 16.1, yaie reset 16.1.

// Matrix product, rung 2 of 5: tiles of a and b in shared memory.
//
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float32, float16 or bfloat16
// Owns      each thread block: a tile of 32 × 32 elements of c; each thread: one of them
#include "common.cuh"

constexpr int TILE = 32;  // rows and columns of each tile

template <typename T>
__global__ void matmul_shared_tile(const T* a, const T* b, T* c, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    // exercise 16.1 begin
    // your lines
    // exercise 16.1 end
}

template <typename T>
static cudaError_t launch(const T* a, const T* b, T* c, int m, int n, int k,
                          cudaStream_t stream) {
    if (m == 0 || n == 0) return cudaSuccess;
    dim3 grid(ceil_div(n, TILE), ceil_div(m, TILE));
    matmul_shared_tile<<<grid, dim3(TILE, TILE), 0, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();
}

extern "C" cudaError_t matmul_shared_tile_f32(const float* a, const float* b,
                                              float* c, int m, int n, int k,
                                              cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_shared_tile_f16(const __half* a, const __half* b,
                                              __half* c, int m, int n, int k,
                                              cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
extern "C" cudaError_t matmul_shared_tile_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b,
                                               __nv_bfloat16* c, int m, int n, int k,
                                               cudaStream_t stream) {
    return launch(a, b, c, m, n, k, stream);
}
