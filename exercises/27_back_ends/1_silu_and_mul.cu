// Exercise 27.1: The operator that you have no kernel for.
// Your parts begin in lines 31 and 38 of this file.
//
// A kernel from the first line to the last: name, parameters, index, bound, formula, and its launch.
// Row r of `x` holds `size` gates and then `size` ups; `out[r][c]` is gate / (1 + exp(-gate)) × up,
// computed in float32 and rounded once. The launcher is instantiated for float32, float16 and
// bfloat16, so the kernel is a template. Change the lines between `begin` and `end` only.
//
// You have
// - `x`, `out`: `[rows, 2 × size]` and `[rows, size]` of type T, one row after the other
// - `rows`, `size`: ints, at least 1
// - `blockIdx.x`, `blockDim.x`, `threadIdx.x`, `THREADS`: which thread this is; threads per thread
//   block
// - `stream`: a `cudaStream_t`, the last argument of the launch
// - `to_float(value)`, `from_float<T>(value)`: from T to float, and back, rounded
// - `expf(x)`, `ceil_div(a, b)`: the natural exponential; a / b, rounded up
//
// In a terminal: yaie check 27.1, yaie hint 27.1, yaie reset 27.1.

// SiLU and multiply, rung 1 of 2: one element per thread, for any size.
//
// Computes  out[r][c] = silu(x[r][c]) × x[r][size + c], with silu(g) = g / (1 + exp(-g)),
//           in float32, rounded once
// Shapes    x [rows, 2 × size], the gates before the ups; out [rows, size]; float32, float16 or
//           bfloat16; fewer than 2³¹ elements
// Owns      each thread: one element of out; each thread block: 256 of them, across rows
#include "common.cuh"

constexpr int THREADS = 256;

// exercise 27.1 begin: the kernel
// your lines
// exercise 27.1 end

template <typename T>
static cudaError_t launch(const T* x, T* out, int rows, int size, cudaStream_t stream) {
    if (rows == 0 || size == 0) return cudaSuccess;
    // exercise 27.1 begin: its launch
    // your lines
    // exercise 27.1 end
    return cudaGetLastError();
}

extern "C" cudaError_t silu_and_mul_simple_f32(const float* x, float* out, int rows, int size,
                                               cudaStream_t stream) {
    return launch(x, out, rows, size, stream);
}
extern "C" cudaError_t silu_and_mul_simple_f16(const __half* x, __half* out, int rows, int size,
                                               cudaStream_t stream) {
    return launch(x, out, rows, size, stream);
}
extern "C" cudaError_t silu_and_mul_simple_bf16(const __nv_bfloat16* x, __nv_bfloat16* out,
                                                int rows, int size, cudaStream_t stream) {
    return launch(x, out, rows, size, stream);
}
