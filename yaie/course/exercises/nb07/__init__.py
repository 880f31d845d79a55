"""Notebook 07: the softmax of a row a tile at a time, merged from parts, and of nothing."""

NOTEBOOK = "07_online_softmax"
