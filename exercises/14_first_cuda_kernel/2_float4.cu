// Exercise 14.2: Four elements in one load.
// Your parts begin in lines 39 and 49 of this file.
//
// Let each thread add four neighboring elements, read and written 16 bytes at a time through
// pointers to `float4`. Two things stand in the way: `n` need not be a multiple of 4, and a tensor
// that is a slice need not begin at an address that is a multiple of 16. `vector_add`, with one
// element per thread, handles the second case.
//
// You have
// - `x`, `y`, `out`: float32, `n` numbers each
// - `float4`: four floats, with members `x`, `y`, `z`, `w`; `make_float4(a, b, c, d)` makes one
// - `*reinterpret_cast<const float4*>(x + i)`: loads four numbers from x[i] on; the address must be
//   a multiple of 16
// - `*reinterpret_cast<float4*>(out + i) = value`: stores four numbers from out[i] on; the same
//   condition
// - `is_aligned(pointer)`: returns whether an address is a multiple of 16
// - `vector_add<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n)`: the launch of a kernel;
//   `vector_add_float4` takes the same
//
// In a terminal: yaie check 14.2, yaie hint 14.2, yaie reset 14.2.

// Vector addition, four elements per thread: one 16-byte load from each input. In float32 only;
// vector_add.cu takes the other dtypes.
//
// Computes  out[i] = x[i] + y[i]
// Shapes    x, y and out [n], float32
// Owns      each thread: four adjacent elements; each thread block: 4 × THREADS
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS = 256;  // per thread block

__global__ void vector_add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

__global__ void vector_add_float4(const float* x, const float* y, float* out, int n) {
    // exercise 14.2 begin: four elements together, or the last few one by one
    // your lines
    // exercise 14.2 end
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

extern "C" cudaError_t vector_add_float4_f32(const float* x, const float* y, float* out, int n,
                                             cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    // exercise 14.2 begin: which of the two kernels, with how many thread blocks
    // your lines
    // exercise 14.2 end
    return cudaGetLastError();
}
