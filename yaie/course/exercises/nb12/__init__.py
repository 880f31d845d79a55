"""Notebook 12: the pieces that the attention kernels in Triton are made of."""

NOTEBOOK = "12_triton_attention"
