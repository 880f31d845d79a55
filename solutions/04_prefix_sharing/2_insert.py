"""Solution of exercise 04.2: Keep what a request has computed.

A request has computed some tokens, and `blocks` is its block table. Put the full blocks into the
tree, and make the cache one more user of those that the tree did not have. Nothing is taken from
the request: it goes on, and releases its table when it ends.

Generated from RadixCache.insert in yaie/engine/prefix_cache.py.
Edit it there, and run `python -m yaie.course build`.
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
        num_full = len(token_ids) // self.block_size
        if len(blocks) < num_full:
            raise ValueError(
                f"blocks: {len(blocks)} blocks do not hold the {num_full} full blocks of token_ids"
            )
        self.pool.check_used(blocks[:num_full])
        node, length = self.tree.insert(token_ids, blocks[:num_full], namespace)
        self.pool.share(blocks[length // self.block_size : num_full])
        return node
