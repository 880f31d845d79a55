"""Notebook 08: FlashAttention's tiles, its forward pass and its backward pass."""
