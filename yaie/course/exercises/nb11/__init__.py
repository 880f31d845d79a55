"""Notebook 11: a vector, a row, and two operators in one kernel, in Triton."""
