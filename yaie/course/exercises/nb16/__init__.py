"""Notebook 16: a tile in shared memory, a tile in registers, a swizzle."""

NOTEBOOK = "16_tiled_matmul"
