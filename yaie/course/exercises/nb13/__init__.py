"""Notebook 13: an index and its bound, float4, half precision, a grid-stride loop, a
launcher that is refused.
"""

NOTEBOOK = "13_first_cuda_kernel"
