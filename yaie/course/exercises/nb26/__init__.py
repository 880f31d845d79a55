"""Notebook 26: a layer split among ranks, heads and files split, drafts accepted."""

NOTEBOOK = "26_where_next"
