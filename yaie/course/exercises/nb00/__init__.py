"""Notebook 00: one small function, to learn how an exercise works."""
