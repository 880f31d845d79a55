"""Notebook 08: FlashAttention's tiles, its forward pass and its backward pass."""

NOTEBOOK = "08_flash_attention"
