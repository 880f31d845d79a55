// Solution of exercise 16.1: A tile of c through tiles of a and b.
//
// A thread block of 32 × 32 threads computes a tile of 32 × 32 elements of c = a b; the thread's own
// is in `row` and `column`. Walk along k in steps of 32: bring a tile of a to a_tile and a tile of b
// to b_tile, one element of each per thread, wait, add 32 products to the thread's sum, wait, go on.
// Then write the sum to c, rounded by `from_float<T>`. m, n and k are any numbers: beyond the edges
// of a and b there are zeros. A matrix may have more than 2³¹ elements, so its indices need 64 bits.
//
// Generated from matmul_shared_tile in csrc/matmul/shared_tile.cu.
// Edit it there, and run `python -m yaie.course build`.

// Matrix product, rung 2 of 5: tiles of a and b in shared memory.
//
// Computes  c = a b, summed in float32, rounded once
// Shapes    a [m, k], b [k, n], c [m, n]: float32, float16 or bfloat16
// Owns      each thread block: a tile of 32 × 32 elements of c; each thread: one of them
// Moves     for each tile of c, 32 rows of a and 32 columns of b: m × n × k / 16 elements, 32 times
//           fewer than the threads of rung 1 request
// Reaches   8.9 TFLOP/s at 4096³ in float32 on an H100, 0.17 of cuBLAS
// Oracle    a b in float64, in tests/test_kernels.py
// Idea      the 32 elements of c in one row of the tile need the same row of a, and those in one
//           column need the same column of b. So the thread block walks along k: it copies a tile
//           of a and a tile of b to shared memory, one element per thread, and all of its threads
//           use them.
#include "common.cuh"

constexpr int TILE = 32;  // rows and columns of each tile

template <typename T>
__global__ void matmul_shared_tile(const T* a, const T* b, T* c, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    // exercise 16.1 begin
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        // Past the edges of a and b the tiles hold zeros, which add nothing.
        bool in_a = row < m && start + x < k, in_b = start + y < k && column < n;
        a_tile[y][x] = in_a ? to_float(a[(size_t)row * k + start + x]) : 0.0f;
        b_tile[y][x] = in_b ? to_float(b[(size_t)(start + y) * n + column]) : 0.0f;
        __syncthreads();  // wait until the whole tile is written
        for (int i = 0; i < TILE; ++i) sum += a_tile[y][i] * b_tile[i][x];
        __syncthreads();  // wait until all threads have read it
    }
    if (row < m && column < n) c[(size_t)row * n + column] = from_float<T>(sum);
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
