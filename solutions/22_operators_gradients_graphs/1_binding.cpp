// Solution of exercise 22.1: A launcher becomes an operator in C++.
//
// Write the binding of `vector_add_float4_f32`: the function that torch calls with tensors. It
// refuses tensors that the launcher would misread, with a message that names the argument (`x` or
// `y`, or both where they do not fit together), allocates the output, launches on the right device
// and stream, and turns an error code into an exception. Then register it. The check compiles your
// file against small headers that stand in for torch's and simulate two GPUs; the same file compiles
// against torch.
//
// Generated from vector_add_cuda in csrc/elementwise/vector_add_binding.cpp.
// Edit it there, and run `python -m yaie.course build`.

// Vector addition as an operator of torch: its implementation for CUDA tensors.
//
// Computes  out = x + y, by the launcher of vector_add_float4.cu
// Shapes    x and y of one shape, float32, contiguous, on one GPU
// Oracle    x + y, equal in every element (tests/test_extension.py)
// Idea      a launcher takes whatever addresses it gets. The binding checks all that a caller in
//           Python can get wrong, and takes from torch what the launch depends on: memory, device
//           and stream.
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
    TORCH_CHECK(x.is_cuda() && x.device() == y.device(), "x and y must be on one GPU, got ",
                x.device(), " and ", y.device());
    TORCH_CHECK(x.scalar_type() == at::kFloat && y.scalar_type() == at::kFloat,
                "x and y must be float32, got ", x.scalar_type(), " and ", y.scalar_type());
    TORCH_CHECK(x.sizes() == y.sizes(), "x and y must have one shape, got ", x.sizes(), " and ",
                y.sizes());
    TORCH_CHECK(x.is_contiguous() && y.is_contiguous(), "x and y must be contiguous");
    TORCH_CHECK(x.numel() <= INT_MAX, "x and y must have at most ", INT_MAX, " elements");
    c10::cuda::CUDAGuard guard(x.device());
    at::Tensor out = at::empty_like(x);
    cudaError_t error = vector_add_float4_f32(
        x.const_data_ptr<float>(), y.const_data_ptr<float>(), out.mutable_data_ptr<float>(),
        x.numel(), c10::cuda::getCurrentCUDAStream());
    C10_CUDA_CHECK(error);
    return out;
    // exercise 22.1 end
}

TORCH_LIBRARY_IMPL(yaie_extension, CUDA, m) {
    // exercise 22.1 begin: the operator is yaie_extension::vector_add
    m.impl("vector_add", &vector_add_cuda);
    // exercise 22.1 end
}
