"""Notebook 25: a wgmma's descriptor, its tile, producer and consumer, the last round of tiles."""
