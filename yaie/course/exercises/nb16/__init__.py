"""Notebook 16: a tile in shared memory, a tile in registers, a swizzle."""
