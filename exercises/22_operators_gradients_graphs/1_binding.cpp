// Exercise 22.1: A launcher becomes an operator in C++.
// Your parts begin in lines 45 and 51 of this file.
//
// Write the binding of `vector_add_float4_f32`: the function that torch calls with tensors. It
// refuses tensors that the launcher would misread, with a message that names the argument (`x` or
// `y`, or both where they do not fit together), allocates the output, launches on the right device
// and stream, and turns an error code into an exception. Then register it. The check compiles your
// file against small headers that stand in for torch's and simulate two GPUs; the same file compiles
// against torch.
//
// You have
// - `vector_add_float4_f32(x, y, out, n, stream)`: the launcher: three pointers to float32, an int,
//   a `cudaStream_t`; returns a `cudaError_t`
// - `x.is_cuda()`, `x.device()`, `x.get_device()`: where a tensor lies; devices can be compared
// - `x.scalar_type()`, `at::kFloat`: its dtype, and float32
// - `x.sizes()`, `x.numel()`, `x.is_contiguous()`: its shape, its number of elements (64 bits),
//   whether they lie side by side in order
// - `x.const_data_ptr<float>()`, `out.mutable_data_ptr<float>()`: addresses
// - `at::empty_like(x)`: a new `at::Tensor` of the same shape, dtype and device
// - `TORCH_CHECK(condition, words, values, …)`: throws with these words unless the condition holds
// - `C10_CUDA_CHECK(code)`: throws if a `cudaError_t` is not `cudaSuccess`
// - `c10::cuda::CUDAGuard guard(device);`: makes a device the current one until `guard` goes out of
//   scope
// - `c10::cuda::getCurrentCUDAStream()`: the current stream of the current device
// - `m.impl("vector_add", &vector_add_cuda)`: registers the function for tensors on a GPU
// - `INT_MAX`: the largest int
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
