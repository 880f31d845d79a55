"""Notebook 09: counted work, the roofline, and how many thread blocks are resident."""

NOTEBOOK = "09_gpu_memory_and_roofline"
