"""Ignores causal=False."""

EXPECT = "causal=False hides nothing"


def key_tiles(first, last, num_k, tile_k, causal=True):
    return max(0, first + 1) // tile_k, -(-max(0, last + 1) // tile_k)
