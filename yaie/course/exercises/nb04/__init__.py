"""Notebook 04: a radix tree whose values are KV blocks."""
