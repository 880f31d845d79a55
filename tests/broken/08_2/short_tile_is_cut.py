"""Takes a short last tile that everybody sees for a cut one."""

EXPECT = "that it is a short one does not matter"


def key_tiles(first, last, num_k, tile_k, causal=True):
    num_tiles = -(-num_k // tile_k)
    if not causal:
        return num_tiles, num_tiles
    return max(0, first + 1) // tile_k, -(-max(0, last + 1) // tile_k)
