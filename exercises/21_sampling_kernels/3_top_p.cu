// Exercise 21.3: The threshold of top-p without a sort.
// Your part begins in line 60 of this file.
//
// Find the smallest logit that top-p keeps of each row, and the mass of all larger ones:
// threshold[row] and above[row]. `wanted` is the mass that has to be reached. Logits are compared by
// their keys. In four rounds, take the key 8 bits at a time: a histogram `bins` of the masses says
// in which of the 256 bins the cumulative mass, in ascending order of keys, first reaches `wanted`.
// The next round looks only at keys that begin with the bits found so far. There are 256 threads.
//
// You have
// - `from`, `columns`: the row of logits, of type T, and how many
// - `wanted`: `Mass`, an integer of 64 bits: what has to be reached
// - `descending(x)`, `float_of(key)`: a float as a key of 32 bits, smaller for larger floats; the
//   float of a key
// - `mass_of(x, best[row])`: returns the `Mass` of a logit
// - `bins`: `Mass` in shared memory, 256 places
// - `atomicAdd(&bins[i], mass)`: adds, whatever other threads add there
// - `THREADS`: 256
// - `threshold`, `above`, `row`: the outputs, float and int64 per row, and the row
// - `to_float(value)`, `__syncthreads()`: a T as a float; all threads meet
//
// In a terminal: yaie check 21.3, yaie hint 21.3, yaie reset 21.3.

// The threshold of top-p without a sort, in four passes.
//
// Computes  threshold[r] = the smallest logit that top-p keeps of row r, and above[r] = the mass of
//           all tokens with larger logits. A token's mass is an integer, 2²⁴ × exp(x − max of the
//           row), so sums are exact in any order. The threshold is the logit at which the
//           cumulative mass, in descending order, first reaches enough[r].
// Shapes    x [rows, columns], float32, float16 or bfloat16, without NaN or +inf; best float32
//           [rows], the maximum of each row; enough int64 [rows], the mass to be kept, from 1 to
//           the mass of the row; threshold float32 and above int64 [rows]
// Owns      each thread block of 256 threads: rows blockIdx.x, blockIdx.x + gridDim.x, …; each
//           thread: columns threadIdx.x, threadIdx.x + 256, … of each of these rows, and one of 256
//           bins
#include "common.cuh"

constexpr int THREADS = 256, BINS = 256;
typedef unsigned long long Mass;  // the 64-bit type that atomicAdd takes

// Keys in ascending order are floats in descending order.
static __device__ unsigned descending(float x) {
    unsigned bits = __float_as_uint(x + 0.0f);  // −0 becomes 0
    return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}
static __device__ float float_of(unsigned key) {
    return __uint_as_float(key >> 31 ? key : ~key & 0x7fffffffu);
}
static __device__ Mass mass_of(float x, float best) {
    return (Mass)(expf(x - best) * 16777216.0f + 0.5f);
}

template <typename T>
__global__ void top_p_threshold(const T* x, const float* best, const int64_t* enough,
                                float* threshold, int64_t* above, int rows, int columns) {
    __shared__ Mass bins[BINS];
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = x + (size_t)row * columns;
        Mass wanted = enough[row];
        // exercise 21.3 begin
        // your lines
        // exercise 21.3 end
    }
}

template <typename T>
static cudaError_t launch(const T* x, const float* best, const int64_t* enough, float* threshold,
                          int64_t* above, int rows, int columns, int blocks, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    top_p_threshold<<<blocks, THREADS, 0, stream>>>(x, best, enough, threshold, above, rows,
                                                    columns);
    return cudaGetLastError();
}

extern "C" cudaError_t top_p_threshold_f32(const float* x, const float* best,
                                           const int64_t* enough, float* threshold,
                                           int64_t* above, int rows, int columns, int blocks,
                                           cudaStream_t stream) {
    return launch(x, best, enough, threshold, above, rows, columns, blocks, stream);
}
extern "C" cudaError_t top_p_threshold_f16(const __half* x, const float* best,
                                           const int64_t* enough, float* threshold,
                                           int64_t* above, int rows, int columns, int blocks,
                                           cudaStream_t stream) {
    return launch(x, best, enough, threshold, above, rows, columns, blocks, stream);
}
extern "C" cudaError_t top_p_threshold_bf16(const __nv_bfloat16* x, const float* best,
                                            const int64_t* enough, float* threshold,
                                            int64_t* above, int rows, int columns, int blocks,
                                            cudaStream_t stream) {
    return launch(x, best, enough, threshold, above, rows, columns, blocks, stream);
}
