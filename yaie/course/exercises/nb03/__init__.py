"""Notebook 03: block tables, reference counts, copy-on-write, slots."""
