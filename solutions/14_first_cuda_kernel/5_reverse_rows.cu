// Solution of exercise 14.5: Repair a launcher that is refused.
//
// The kernel is right; the launcher is not. It gives each column a thread, takes more than 48 KiB of
// shared memory without asking for it, launches empty grids, and returns `cudaSuccess` whatever
// happened. Repair the lines between `begin` and `end`: every matrix whose rows fit the GPU's shared
// memory is reversed, an empty matrix is no error, and a refused launch returns its error, which the
// next call does not see.
//
// Generated from reverse_rows in csrc/elementwise/reverse_rows.cu.
// Edit it there, and run `python -m yaie.course build`.

// The elements of each row in reverse order.
//
// Computes  out[r][c] = x[r][columns - 1 - c]
// Shapes    x and out [rows, columns], float32; out may be x itself
// Owns      each thread block: a row, which it keeps in shared memory between reading and writing
// Moves     each element once in and once out: 8 × rows × columns bytes
// Oracle    x.flip(-1), in tests/test_kernels.py
// Idea      rows of any length that fits in shared memory: up to 12,288 floats without asking, up to
//           58,112 on Hopper, if the launcher asks for more than 48 KiB.
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
    if (rows == 0 || columns == 0) return cudaSuccess;  // a grid or a thread block of nothing
    int threads = columns < MOST_THREADS ? columns : MOST_THREADS;
    size_t bytes = columns * sizeof(float);
    // If it is more than the GPU has, this and the launch are refused, and one error is kept.
    if (bytes > WITHOUT_ASKING) {
        cudaFuncSetAttribute(reverse_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    }
    reverse_rows<<<rows, threads, bytes, stream>>>(x, out, columns);
    return cudaGetLastError();
    // exercise 14.5 end
}

// Two calls. The code of the first is dropped: an error that it leaves stored shows in the second.
extern "C" cudaError_t reverse_two_f32(const float* x, float* out, int rows, int columns,
                                       const float* y, float* y_out, int y_rows, int y_columns,
                                       cudaStream_t stream) {
    reverse_rows_f32(x, out, rows, columns, stream);
    return reverse_rows_f32(y, y_out, y_rows, y_columns, stream);
}
