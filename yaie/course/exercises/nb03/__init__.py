"""Notebook 03: block tables, reference counts, copy-on-write, slots."""

NOTEBOOK = "03_paged_kv_cache"
