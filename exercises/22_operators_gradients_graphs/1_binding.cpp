// Exercise 22.1: A launcher becomes an operator in C++.
//
// Write the binding of `vector_add_float4_f32`: the function that torch calls with tensors. It
// refuses tensors that the launcher would misread, with a message that names the argument (`x` or
// `y`), allocates the output, launches on the right device and stream, and turns an error code into
// an exception. Then register it. The check compiles your file against small headers that stand in
// for torch's and simulate two GPUs; the same file compiles against torch.
//
// In a terminal: yaie check 22.1, yaie hint 22.1, yaie reset 22.1.

// Vector addition as an operator of torch: its implementation for CUDA tensors.
//
// Computes  out = x + y, by the launcher of vector_add_float4.cu
// Shapes    x and y of one shape, float32, contiguous, on one GPU
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <limits.h>
#include <torch/library.h>

extern "C" cudaError_t vector_add_float4_f32(const float* x, const float* y, float* out, int n,
                                             cudaStream_t stream);

at::Tensor vector_add_cuda(const at::Tensor& x, const at::Tensor& y) {
    // exercise 22.1 begin: the checks, the output, the launch, its error
    // your lines
    // exercise 22.1 end
}

TORCH_LIBRARY_IMPL(yaie_extension, CUDA, m) {
    // exercise 22.1 begin: the operator is yaie_extension::vector_add
    // your lines
    // exercise 22.1 end
}
