"""Notebook 27: the last kernel that the model lacks, and which back end computes an operator."""
