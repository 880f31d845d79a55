// Solution of exercise 15.1: Transpose through a padded tile.
//
// A thread block of 32 × 8 threads transposes a tile of 32 × 32 elements. Read the tile from `in`
// row by row into shared memory, wait, and write it to `out` row by row. The matrix has any number
// of rows and columns, so the last tiles are cut off. Each warp must ask for neighbors only (4
// sectors per request in float32), and no two lanes may meet in a bank (1 wavefront per request), in
// float16 as well.
//
// Generated from transpose in csrc/transpose/transpose.cu.
// Edit it there, and run `python -m yaie.course build`.

// Transpose, rung 3 of 3: through a padded tile; the kernel that the engine uses.
//
// Computes  out[c][r] = in[r][c]
// Shapes    in [rows, columns], out [columns, rows], float32, float16 or bfloat16
// Owns      each thread block: a tile of 32 × 32 elements; each thread: four elements of it
// Moves     each element in once and out once: 2 × rows × columns × element size
// Oracle    x.t(), in tests/test_kernels.py
// Idea      each row of the tile is padded by one 4-byte word, so it begins one bank after the row
//           above it. The elements of a column then lie in 32 different banks: one wavefront.
#include "common.cuh"

constexpr int TILE = 32;  // rows and columns of a tile; as wide as a warp
constexpr int STEP = 8;   // rows of threads: a thread takes every eighth row of the tile

template <typename T>
__global__ void transpose(const T* in, T* out, int rows, int columns) {
    // exercise 15.1 begin: fill the tile, wait, and write it transposed
    __shared__ T tile[TILE][TILE + 4 / sizeof(T)];

    int column = blockIdx.x * TILE + threadIdx.x;
    for (int step = threadIdx.y; step < TILE; step += STEP) {
        int row = blockIdx.y * TILE + step;
        if (row < rows && column < columns) {
            tile[step][threadIdx.x] = in[(size_t)row * columns + column];
        }
    }
    __syncthreads();

    int row = blockIdx.y * TILE + threadIdx.x;
    for (int step = threadIdx.y; step < TILE; step += STEP) {
        int column = blockIdx.x * TILE + step;
        if (row < rows && column < columns) {
            out[(size_t)column * rows + row] = tile[threadIdx.x][step];
        }
    }
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
