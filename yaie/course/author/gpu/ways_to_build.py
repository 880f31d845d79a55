"""From the source of one kernel to a function that can be called: the ways of notebook 22."""

_JIT_LOAD = """
from yaie.build import jit
x = torch.ones(4, device="cuda")
begun = time.perf_counter()
jit.load(path).vector_add_float4_f32(x, x, torch.empty_like(x), 4)
built = str(next(pathlib.Path(folder).rglob("*.so")))
"""
# Each is a program that prints seconds and the path of what it built, from an empty cache.
PROGRAMS = {
    "load_inline, classic": """
from torch.utils.cpp_extension import load_inline
source = kernel.partition("bool is_aligned")[0] + '''
torch::Tensor vector_add_float4(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    vector_add_float4<<<(n + 4 * THREADS - 1) / (4 * THREADS), THREADS, 0,
                        c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
'''
source = "#include <c10/cuda/CUDAStream.h>\\n" + source
built = load_inline("classic", "torch::Tensor vector_add_float4(torch::Tensor x, torch::Tensor y);",
                    source, functions=["vector_add_float4"]).__file__
""",
    "load, two files: torch's headers in the .cpp only": """
from torch.utils.cpp_extension import load
binding = '''#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
extern "C" cudaError_t vector_add_float4_f32(const float*, const float*, float*, int, cudaStream_t);
torch::Tensor vector_add_float4(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty_like(x);
    vector_add_float4_f32(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(),
                          x.numel(), c10::cuda::getCurrentCUDAStream());
    return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("vector_add_float4", &vector_add_float4); }
'''
pathlib.Path(folder, "binding.cpp").write_text(binding)
pathlib.Path(folder, "kernel.cu").write_text(kernel)
begun = time.perf_counter()
built = load("two_files", [f"{folder}/binding.cpp", f"{folder}/kernel.cu"]).__file__
""",
    "load_inline, no torch header, ctypes": """
from torch.utils.cpp_extension import load_inline
import ctypes
built = load_inline("lean", "", kernel, no_implicit_headers=True, is_python_module=False,
                    extra_cuda_cflags=["-O3"])
built = built or str(next(pathlib.Path(folder).rglob("lean*.so")))
ctypes.CDLL(built).vector_add_float4_f32
""",
    "yaie.jit.load": _JIT_LOAD,
    "yaie.jit.load, kept from before": _JIT_LOAD,
    "NVRTC, in the process: torch.cuda._compile_kernel": """
source = "extern \\"C\\" " + kernel[kernel.index("__global__ void vector_add("):]
source = source.partition("__global__ void vector_add_float4")[0]
torch.zeros(1, device="cuda")
begun = time.perf_counter()
torch.cuda._compile_kernel(source, "vector_add")
built = None
""",
}
SLOW = list(PROGRAMS)[:2]  # these run at the same time, on cores of their own
HEAD = """
import json, pathlib, sys, time, torch, torch.utils.cpp_extension
folder, path = sys.argv[1:]
kernel = pathlib.Path(path).read_text()
begun = time.perf_counter()
"""
TAIL = """
seconds = time.perf_counter() - begun
print("RESULT", json.dumps([seconds, built and pathlib.Path(built).stat().st_size]))
"""
