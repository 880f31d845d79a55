"""Counts whole tiles below 0."""

EXPECT = "no count is below 0"


def key_tiles(first, last, num_k, tile_k, causal=True):
    num_tiles = -(-num_k // tile_k)
    if not causal or first >= num_k - 1:
        return num_tiles, num_tiles
    return (first + 1) // tile_k, -(-max(0, last + 1) // tile_k)
