"""Notebook 29: a layer split among ranks, heads and files split, drafts accepted."""
