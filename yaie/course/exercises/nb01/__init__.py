"""Notebook 01: attention, rotary positions, and a layer with a cache."""

NOTEBOOK = "01_attention_and_kv_cache"
