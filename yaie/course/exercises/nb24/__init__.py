"""Notebook 24: the last kernel that the model lacks, and which back end computes an operator."""

NOTEBOOK = "24_back_ends"
