"""Notebook 11: a matrix product in tiles, and the order of the tiles."""

NOTEBOOK = "11_triton_matmul"
