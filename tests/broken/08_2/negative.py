"""Counts below 0 for queries before all keys."""

EXPECT = "no count is below 0"


def key_tiles(first, last, num_k, tile_k, causal=True):
    num_tiles = -(-num_k // tile_k)
    if not causal or first >= num_k - 1:
        return num_tiles, num_tiles
    return max(0, first + 1) // tile_k, -(-(last + 1) // tile_k)
