"""Notebook 19: softmax of a thread block, grouped queries, splits, shared prefixes."""

NOTEBOOK = "19_paged_attention_cuda"
