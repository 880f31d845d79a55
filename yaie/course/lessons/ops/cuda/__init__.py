"""The lessons' operators by CUDA C++ kernels."""
