"""Notebook 10: a product by vectors and threads, 8-bit groups, a fused norm, a split context."""
