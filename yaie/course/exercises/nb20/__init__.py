"""Notebook 20: softmax statistics, a draw by Gumbel's trick, top-p without a sort."""

NOTEBOOK = "20_sampling_kernels"
