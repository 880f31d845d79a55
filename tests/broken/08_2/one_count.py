"""Returns how many tiles are seen, and no more."""

EXPECT = "expected two counts"


def key_tiles(first, last, num_k, tile_k, causal=True):
    num_tiles = -(-num_k // tile_k)
    if not causal or first >= num_k - 1:
        return num_tiles
    return -(-max(0, last + 1) // tile_k)
