"""Notebook 12: a matrix product in tiles, and the order of the tiles."""
