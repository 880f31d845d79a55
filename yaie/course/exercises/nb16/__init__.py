"""Notebook 16: writing to slots, copying blocks, storing 8-bit floats."""

NOTEBOOK = "16_kv_memory_operations"
