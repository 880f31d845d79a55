"""Notebook 15: a tile in shared memory, a tile in registers, a swizzle."""

NOTEBOOK = "15_tiled_matmul"
