"""Notebook 17: writing to slots, copying blocks, storing 8-bit floats."""
