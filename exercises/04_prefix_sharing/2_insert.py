"""Exercise 04.2: Keep what a request has computed.

A request has computed some tokens, and `blocks` is its block table. Put the full blocks into the
tree, and make the cache one more user of those that the tree did not have. Nothing is taken from
the request: it goes on, and releases its table when it ends.

You have
- `self.tree.insert(token_ids, values, namespace)`: keeps the full blocks of the tokens; returns
  the node at their end and how many tokens were there before
- `self.pool.check_used(blocks)`: ValueError if one of them is free
- `self.pool.share(blocks)`: one user more for each
- `self.block_size`: tokens per block
- `blocks`: the request's block table, a list of ints; the last block may be partly filled

In a terminal: yaie check 04.2, yaie hint 04.2, yaie reset 04.2.
What this file does not define is inherited from yaie/engine/prefix_cache.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from yaie.engine import prefix_cache as reference
from yaie.engine.radix import RadixNode


class RadixCache(reference.RadixCache):
    def insert(
        self, token_ids: Sequence[int], blocks: Sequence[int], namespace: str = ""
    ) -> RadixNode:
        """Keep computed tokens and the blocks that hold them; the full blocks only.

        The cache becomes a user of the blocks it had not yet. Where it already holds a block for
        the same tokens, it keeps that one, and the caller's duplicate stays the caller's: it is
        freed when the caller releases its table.

        Returns:
            The node at which the tokens of the full blocks end, to lock.

        Raises:
            ValueError: `blocks` are too few for the full blocks of `token_ids`, or one of those
                that are to be kept is free. Nothing is kept.
        """
        raise NotImplementedError("Exercise 04.2: Keep what a request has computed")
