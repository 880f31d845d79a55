// Solution of exercise 14.2: Four elements in one load.
//
// Let each thread add four neighboring elements, read and written 16 bytes at a time through
// pointers to `float4`. Two things stand in the way: `n` need not be a multiple of 4, and a tensor
// that is a slice need not begin at an address that is a multiple of 16. `vector_add`, with one
// element per thread, handles the second case.
//
// Generated from vector_add_float4 in csrc/elementwise/vector_add_float4.cu.
// Edit it there, and run `python -m yaie.course build`.

// Vector addition, four elements per thread: one 16-byte load from each input. In float32 only;
// vector_add.cu takes the other dtypes.
//
// Computes  out[i] = x[i] + y[i]
// Shapes    x, y and out [n], float32
// Owns      each thread: four adjacent elements; each thread block: 4 × THREADS
// Moves     each input once and the output once: 12 × n bytes, as with one element per thread
// Oracle    x + y, equal in every element (yaie/course/exercises/nb14)
// Idea      the same bytes take a quarter of the requests, so each thread has more bytes in flight.
//           The addresses must be multiples of 16; otherwise each thread takes one element.
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS = 256;  // per thread block

__global__ void vector_add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

__global__ void vector_add_float4(const float* x, const float* y, float* out, int n) {
    // exercise 14.2 begin: four elements together, or the last few one by one
    int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (first + 4 <= n) {
        float4 a = *reinterpret_cast<const float4*>(x + first);
        float4 b = *reinterpret_cast<const float4*>(y + first);
        float4 sum = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
        *reinterpret_cast<float4*>(out + first) = sum;
    } else {
        for (int i = first; i < n; ++i) out[i] = x[i] + y[i];
    }
    // exercise 14.2 end
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

extern "C" cudaError_t vector_add_float4_f32(const float* x, const float* y, float* out, int n,
                                             cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    // exercise 14.2 begin: which of the two kernels, with how many thread blocks
    if (is_aligned(x) && is_aligned(y) && is_aligned(out)) {
        int thread_blocks = (n + 4 * THREADS - 1) / (4 * THREADS);
        vector_add_float4<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n);
    } else {
        int thread_blocks = (n + THREADS - 1) / THREADS;
        vector_add<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n);
    }
    // exercise 14.2 end
    return cudaGetLastError();
}
