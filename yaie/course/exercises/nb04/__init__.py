"""Notebook 04: a radix tree whose values are KV blocks."""

NOTEBOOK = "04_prefix_sharing"
