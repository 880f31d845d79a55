"""CUDA C++ kernels from `csrc/`: compiled by nvcc on a GPU, emulated on a CPU."""
