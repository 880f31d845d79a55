"""Notebook 17: attention by one warp per row and by tiles, and the gradients of keys."""

NOTEBOOK = "17_flash_attention_cuda"
