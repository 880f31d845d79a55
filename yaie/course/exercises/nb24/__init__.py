"""Notebook 24: a layer split among ranks, heads and files split, drafts accepted."""

NOTEBOOK = "24_where_next"
