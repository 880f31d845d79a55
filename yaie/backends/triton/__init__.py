"""Triton kernels: compiled on a GPU, interpreted on a CPU."""
