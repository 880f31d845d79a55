"""Notebook 22: bindings and operators of torch, a gradient, a captured step, limits, faults."""

NOTEBOOK = "22_building_profiling_differentiating"
