"""Notebook 22: bindings and operators of torch, ways to build, a gradient, a captured step."""
