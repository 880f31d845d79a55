"""Notebook 18: softmax of a thread block, grouped queries, splits, shared prefixes."""

NOTEBOOK = "18_paged_attention_cuda"
