"""Notebook 19: softmax of a thread block, grouped queries, splits, shared prefixes."""
