"""Notebook 22: the last kernel that the model lacks, and which back end computes an operator."""

NOTEBOOK = "22_back_ends"
