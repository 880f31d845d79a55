"""Notebook 10: a vector, a row, and two operators in one kernel, in Triton."""

NOTEBOOK = "10_first_triton_kernels"
