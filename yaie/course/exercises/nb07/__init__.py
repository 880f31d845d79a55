"""Notebook 07: the softmax of a row tile by tile, merged from parts, and of a row without keys."""
