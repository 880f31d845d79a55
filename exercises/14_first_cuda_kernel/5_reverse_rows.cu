// Exercise 14.5: Repair a launcher that is refused.
// Your part begins in line 42 of this file.
//
// The kernel is right; the launcher is not. It gives each column a thread, takes more than 48 KiB of
// shared memory without asking for it, launches empty grids, and returns `cudaSuccess` whatever
// happened. Repair the lines between `begin` and `end`: every matrix whose rows fit the GPU's shared
// memory is reversed, an empty matrix is no error, and a refused launch returns its error, which the
// next call does not see.
//
// You have
// - `x`, `out`: float32 `[rows, columns]`; `rows` and `columns` are ints and may be 0
// - `reverse_rows<<<thread_blocks, threads, shared_bytes, stream>>>(x, out, columns)`: a thread
//   block for each row; any number of threads; needs `columns` floats of shared memory
// - `MOST_THREADS`, `WITHOUT_ASKING`: 1,024 threads, and the 48 KiB of shared memory that any launch
//   may use
// - `cudaFuncSetAttribute(reverse_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)`: allows
//   more; returns a `cudaError_t`
// - `cudaGetLastError()`: returns the error that the runtime has stored, and clears it
//
// In a terminal: yaie check 14.5, yaie hint 14.5, yaie reset 14.5.

// The elements of each row in reverse order.
//
// Computes  out[r][c] = x[r][columns - 1 - c]
// Shapes    x and out [rows, columns], float32; out may be x itself
// Owns      each thread block: a row, which it keeps in shared memory between reading and writing
#include <cuda_runtime.h>

constexpr int MOST_THREADS = 1024;            // that a thread block can have
constexpr size_t WITHOUT_ASKING = 48 * 1024;  // bytes of shared memory that a launch may take

__global__ void reverse_rows(const float* x, float* out, int columns) {
    extern __shared__ float row[];
    size_t first = (size_t)blockIdx.x * columns;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) row[c] = x[first + c];
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += blockDim.x) out[first + c] = row[columns - 1 - c];
}

extern "C" cudaError_t reverse_rows_f32(const float* x, float* out, int rows, int columns,
                                        cudaStream_t stream) {
    // exercise 14.5 begin: a launch for every size, and its error
    int threads = columns;
    size_t bytes = columns * sizeof(float);
    reverse_rows<<<rows, threads, bytes, stream>>>(x, out, columns);
    return cudaSuccess;
    // exercise 14.5 end
}

// Two calls. The code of the first is dropped: an error that it leaves stored shows in the second.
extern "C" cudaError_t reverse_two_f32(const float* x, float* out, int rows, int columns,
                                       const float* y, float* y_out, int y_rows, int y_columns,
                                       cudaStream_t stream) {
    reverse_rows_f32(x, out, rows, columns, stream);
    return reverse_rows_f32(y, y_out, y_rows, y_columns, stream);
}
