"""Notebook 20: a prefix sum, a search, a tree as arrays, and the host's side of a kernel."""
