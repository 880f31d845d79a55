"""Exercise 26.3: Causal tiles, dealt out to and fro.

A thread block that stays on its SM computes several pieces of work, one after another. A piece is
a tile of queries and a head, and with a causal mask tile t sees t + 1 tiles of keys. Write the
list of a thread block's pieces, in its order. Number all pieces from 0: the tiles that see the
most keys come first, and all heads of a tile follow each other. Then deal them out in rounds of
one piece per thread block, forwards in rounds 0, 2, 4, …, and backwards in the others: there the
first piece goes to the last thread block.

You have
- `block`, `blocks`: which thread block, from 0, and how many there are
- `tiles`, `heads`: of queries and heads, each at least 1; there are `tiles * heads` pieces
- `(tile, head)`: a piece; the function returns a list of these

In a terminal: yaie check 26.3, yaie hint 26.3, yaie reset 26.3.
"""

from __future__ import annotations

from yaie.course.lessons.causal_order import Piece


def pieces_of(block: int, blocks: int, tiles: int, heads: int) -> list[Piece]:
    """The pieces of work of one of `blocks` thread blocks that stay, in its order.

    A piece is a tile of queries and a head. The tiles that see the most keys come first, and all
    heads of a tile follow each other. A round gives one piece to each thread block: in rounds 0, 2,
    4, ... the first piece to the first of them, in the others to the last.

    Args:
        block: which thread block, from 0.
        tiles: of queries; tile t sees t + 1 tiles of keys.
    """
    raise NotImplementedError("Exercise 26.3: Causal tiles, dealt out to and fro")
