"""Notebook 18: attention by one warp per row and by tiles, and the gradients of keys."""
