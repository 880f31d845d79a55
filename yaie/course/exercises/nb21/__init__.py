"""Notebook 21: an operator of torch, its gradient, a captured step, and what limits a kernel."""

NOTEBOOK = "21_building_profiling_differentiating"
