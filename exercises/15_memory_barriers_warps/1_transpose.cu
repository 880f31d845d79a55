// Exercise 15.1: Transpose through a padded tile.
// Your part begins in line 32 of this file.
//
// A thread block of 32 × 8 threads transposes a tile of 32 × 32 elements. Read the tile from `in`
// row by row into shared memory, wait, and write it to `out` row by row. The matrix has any number
// of rows and columns, so the last tiles are cut off. Each warp must ask for neighbors only (4
// sectors per request in float32), and no two lanes may meet in a bank (1 wavefront per request), in
// float16 as well.
//
// You have
// - `in`, `out`: `[rows, columns]` and `[columns, rows]` of type T, one row after the other
// - `TILE`, `STEP`: 32, the side of a tile; 8, the rows of threads
// - `threadIdx.x`, `threadIdx.y`: 0 to 31 and 0 to 7; a warp has the same y
// - `blockIdx.x`, `blockIdx.y`: which tile across, which tile down
// - `__shared__ T tile[…][…]`: an array in shared memory, which has 32 banks of 4 bytes
// - `__syncthreads()`: all threads meet
//
// In a terminal: yaie check 15.1, yaie hint 15.1, yaie reset 15.1.

// Transpose, rung 3 of 3: through a padded tile; the kernel that the engine uses.
//
// Computes  out[c][r] = in[r][c]
// Shapes    in [rows, columns], out [columns, rows], float32, float16 or bfloat16
// Owns      each thread block: a tile of 32 × 32 elements; each thread: four elements of it
#include "common.cuh"

constexpr int TILE = 32;  // rows and columns of a tile; as wide as a warp
constexpr int STEP = 8;   // rows of threads: a thread takes every eighth row of the tile

template <typename T>
__global__ void transpose(const T* in, T* out, int rows, int columns) {
    // exercise 15.1 begin: fill the tile, wait, and write it transposed
    // your lines
    // exercise 15.1 end
}

template <typename T>
static cudaError_t launch(const T* in, T* out, int rows, int columns, cudaStream_t stream) {
    if (rows == 0 || columns == 0) return cudaSuccess;
    dim3 tiles(ceil_div(columns, TILE), ceil_div(rows, TILE));
    transpose<<<tiles, dim3(TILE, STEP), 0, stream>>>(in, out, rows, columns);
    return cudaGetLastError();
}

extern "C" cudaError_t transpose_f32(const float* in, float* out, int rows, int columns,
                                     cudaStream_t stream) {
    return launch(in, out, rows, columns, stream);
}
extern "C" cudaError_t transpose_f16(const __half* in, __half* out, int rows, int columns,
                                     cudaStream_t stream) {
    return launch(in, out, rows, columns, stream);
}
extern "C" cudaError_t transpose_bf16(const __nv_bfloat16* in, __nv_bfloat16* out, int rows,
                                      int columns, cudaStream_t stream) {
    return launch(in, out, rows, columns, stream);
}
