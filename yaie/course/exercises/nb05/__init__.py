"""Notebook 05: two filters of logits, and a sampler that keeps requests apart."""
