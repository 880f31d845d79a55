"""Notebook 01: attention, rotary positions, and a layer with a cache."""
