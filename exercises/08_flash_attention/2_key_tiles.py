"""Exercise 08.2: Which tiles a causal mask leaves.

A tile of queries is at the positions `first` to `last`, and tile j of the keys at j * tile_k and
after. Count the tiles that every query sees whole, and the tiles of which some query sees
something. Each count takes one division.

You have
- `first`, `last`: positions of the tile's first and last query, ints counted as the keys are;
  negative for a query before all keys
- `num_k`, `tile_k`: how many keys there are, and how many are in a tile; the last tile may be
  shorter
- `a // b`, `-(-a // b)`: a / b rounded down, and up

In a terminal: yaie check 08.2, yaie hint 08.2, yaie reset 08.2.
"""

from __future__ import annotations


def key_tiles(
    first: int, last: int, num_k: int, tile_k: int, causal: bool = True
) -> tuple[int, int]:
    """Sort the tiles of keys by what a tile of queries may see of them.

    Tile `j` holds the keys `j * tile_k` to `(j + 1) * tile_k - 1`, or to `num_k - 1` if it is the
    last one. A causal query at position `p` sees the keys 0 to `p`; the others see all keys.

    Args:
        first, last: positions of the first and of the last query of the tile, counted as the keys
            are. Negative for a query that comes before all keys, and sees none.

    Returns:
        Two counts, (whole, seen). The tiles 0 to whole - 1 are seen whole by every query, the
        tiles whole to seen - 1 in part, so they need a mask. No query sees a key of any tile
        after those: they are skipped.
    """
    raise NotImplementedError("Exercise 08.2: Which tiles a causal mask leaves")
