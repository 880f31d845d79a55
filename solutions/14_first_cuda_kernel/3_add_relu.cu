// Solution of exercise 14.3: Add and ReLU in one pass, in half precision.
//
// Compute relu(x + y) of float16 vectors without writing the sum to memory in between. A thread has
// two neighboring elements. The launch is written. Every result has to equal that of `torch.relu(x +
// y)`.
//
// Generated from add_relu in csrc/elementwise/add_relu_half2.cu.
// Edit it there, and run `python -m yaie.course build`.

// Fused addition and ReLU, one pair of float16 elements per thread. add_relu.cu takes the other
// dtypes and more elements per thread.
//
// Computes  out[i] = max(x[i] + y[i], 0); NaN stays NaN
// Shapes    x, y and out [n], float16, at addresses that are multiples of 4
// Owns      each thread: two adjacent elements; each thread block: 2 × THREADS
// Moves     each input once and the output once: 6 × n bytes. One kernel for the sum and another
//           for the ReLU would move 10 × n.
// Oracle    torch.relu(x + y), equal in every element (yaie/course/exercises/nb14)
// Idea      one instruction adds two 16-bit elements, and another compares two. The sum is rounded
//           once to float16, as PyTorch rounds it, so the results are identical.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS = 256;  // per thread block

__global__ void add_relu(const __half* x, const __half* y, __half* out, int n) {
    // exercise 14.3 begin: a pair of elements, or the single one at the end of an odd n
    int first = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (first + 2 <= n) {
        __half2 a = *reinterpret_cast<const __half2*>(x + first);
        __half2 b = *reinterpret_cast<const __half2*>(y + first);
        __half2 zeros = __float2half2_rn(0.0f);
        *reinterpret_cast<__half2*>(out + first) = __hmax2_nan(__hadd2(a, b), zeros);
    } else if (first < n) {
        out[first] = __hmax_nan(__hadd(x[first], y[first]), __float2half(0.0f));
    }
    // exercise 14.3 end
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 4 == 0; }

extern "C" cudaError_t add_relu_half2_f16(const __half* x, const __half* y, __half* out, int n,
                                          cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    if (!is_aligned(x) || !is_aligned(y) || !is_aligned(out)) return cudaErrorMisalignedAddress;
    int thread_blocks = (n + 2 * THREADS - 1) / (2 * THREADS);
    add_relu<<<thread_blocks, THREADS, 0, stream>>>(x, y, out, n);
    return cudaGetLastError();
}
