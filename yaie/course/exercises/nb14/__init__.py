"""Notebook 14: an index and its bound, float4, half precision, a grid-stride loop, an error."""
