"""Vector addition as an extension of torch, compiled ahead of time.

    python setup.py build_ext --inplace         in this folder, or in a copy of it

makes yaie_extension.so, which torch.ops.load_library loads. Where there is a CUDA toolkit and torch
is built for CUDA, it has the operator for CPU and CUDA tensors; elsewhere for CPU tensors alone.
TORCH_CUDA_ARCH_LIST says for which GPUs, such as "7.5;8.0;9.0+PTX"; by default for those in this
machine.
"""

import torch
from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension

kind, sources = CppExtension, ["vector_add_host.cpp"]
if CUDA_HOME is not None and torch.version.cuda is not None:
    kind, sources = CUDAExtension, [*sources, "vector_add_binding.cpp", "vector_add_float4.cu"]

setup(
    name="yaie_extension",
    version="1.0",
    py_modules=[],
    ext_modules=[kind("yaie_extension", sources)],
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)},
)
