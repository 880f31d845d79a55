"""Which tiles of a causal batch a thread block computes, so that all are done at the same time."""

from __future__ import annotations

from collections.abc import Sequence

Piece = tuple[int, int]  # a tile of queries and a head


def pieces_of(block: int, blocks: int, tiles: int, heads: int) -> list[Piece]:
    """The pieces of work of one of `blocks` thread blocks that stay, in its order.

    A piece is a tile of queries and a head. The tiles that see the most keys come first, and all
    heads of a tile follow each other. A round gives one piece to each thread block: in rounds 0, 2,
    4, ... the first piece to the first of them, in the others to the last.

    Args:
        block: which thread block, from 0.
        tiles: of queries; tile t sees t + 1 tiles of keys.
    """
    pieces = []
    for first in range(0, tiles * heads, blocks):
        is_back = first // blocks % 2 == 1
        index = first + (blocks - 1 - block if is_back else block)
        if index < tiles * heads:
            pieces.append((tiles - 1 - index // heads, index % heads))
    return pieces


def in_one_direction(block: int, blocks: int, tiles: int, heads: int) -> list[Piece]:
    """The same without turning round: every n-th piece."""
    return [(tiles - 1 - i // heads, i % heads) for i in range(block, tiles * heads, blocks)]


def contiguous(block: int, blocks: int, tiles: int, heads: int) -> list[Piece]:
    """As many neighboring pieces for each thread block, the shortest tiles first."""
    count = -(-tiles * heads // blocks)
    every = [(i // heads, i % heads) for i in range(tiles * heads)]
    return every[block * count : (block + 1) * count]


def load(pieces: Sequence[Piece]) -> int:
    """How many tiles of keys the pieces visit."""
    return sum(tile + 1 for tile, _ in pieces)
