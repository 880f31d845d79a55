"""Notebook 21: bindings and operators of torch, a gradient, a captured step, limits, faults."""

NOTEBOOK = "21_building_profiling_differentiating"
