"""Notebook 05: two filters of logits, and a sampler that keeps requests apart."""

NOTEBOOK = "05_sampling"
