"""Notebook 13: the pieces that the attention kernels in Triton are made of."""
