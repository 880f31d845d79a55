"""Notebook 14: an index and its bound, float4, half precision, a grid-stride loop, a
launcher that is refused.
"""

NOTEBOOK = "14_first_cuda_kernel"
