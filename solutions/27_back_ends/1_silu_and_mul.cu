// Solution of exercise 27.1: The operator that you have no kernel for.
//
// A kernel from the first line to the last: name, parameters, index, bound, formula, and its launch.
// Row r of `x` holds `size` gates and then `size` ups; `out[r][c]` is gate / (1 + exp(-gate)) × up,
// computed in float32 and rounded once. The launcher is instantiated for float32, float16 and
// bfloat16, so the kernel is a template. Change the lines between `begin` and `end` only.
//
// Generated from silu_and_mul_simple in csrc/activation/silu_and_mul_simple.cu.
// Edit it there, and run `python -m yaie.course build`.

// SiLU and multiply, rung 1 of 2: one element per thread, for any size.
//
// Computes  out[r][c] = silu(x[r][c]) × x[r][size + c], with silu(g) = g / (1 + exp(-g)),
//           in float32, rounded once
// Shapes    x [rows, 2 × size], the gates before the ups; out [rows, size]; float32, float16 or
//           bfloat16; fewer than 2³¹ elements
// Owns      each thread: one element of out; each thread block: 256 of them, across rows
// Moves     x in once and out once: 3 × rows × size × element size
// Oracle    the formula in float64, in tests/test_kernels.py
// Idea      one kernel replaces three operators. A warp reads 32 adjacent gates and 32 adjacent
//           ups.
#include "common.cuh"

constexpr int THREADS = 256;

// exercise 27.1 begin: the kernel
template <typename T>
__global__ void silu_and_mul_simple(const T* x, T* out, int rows, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * size) return;
    int row = i / size, column = i % size;
    const T* x_row = x + (size_t)row * 2 * size;
    float gate = to_float(x_row[column]), up = to_float(x_row[size + column]);
    out[i] = from_float<T>(gate / (1.0f + expf(-gate)) * up);
}
// exercise 27.1 end

template <typename T>
static cudaError_t launch(const T* x, T* out, int rows, int size, cudaStream_t stream) {
    if (rows == 0 || size == 0) return cudaSuccess;
    // exercise 27.1 begin: its launch
    silu_and_mul_simple<<<ceil_div(rows * size, THREADS), THREADS, 0, stream>>>(x, out, rows, size);
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
