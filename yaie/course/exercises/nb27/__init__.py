"""Notebook 27: the last kernel that the model lacks, and which back end computes an operator."""

NOTEBOOK = "27_back_ends"
