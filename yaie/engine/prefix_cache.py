"""RadixAttention's memory: a radix tree whose values are KV blocks.

A request that begins with tokens computed before takes the blocks that hold them, and computes
only the rest. Ownership is by reference count alone: the cache is one user of each block it
holds, and each request is one user of each block in its table. A block without users is free.
Locks are separate: they keep a node from eviction, because evicting a block that a request still
uses would free no memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from yaie.engine.kv_cache import BlockPool
from yaie.engine.radix import Match, RadixNode, RadixTree


class RadixCache:
    """Finished and running prefixes, by their tokens, as KV blocks.

    Args:
        pool: the blocks; the cache holds references in it.
        block_size: tokens per block.
        tree: an empty `RadixTree` of the same block size; a new one by default.
    """

    def __init__(self, pool: BlockPool, block_size: int, tree: RadixTree | None = None) -> None:
        self.pool = pool
        self.tree = RadixTree(block_size) if tree is None else tree
        if self.tree.block_size != block_size:
            raise ValueError(
                f"tree has block_size {self.tree.block_size}, the cache has {block_size}"
            )
        self.block_size = block_size

    @property
    def num_cached(self) -> int:
        """How many blocks the cache holds."""
        return self.tree.num_values

    @property
    def num_available(self) -> int:
        """How many blocks a request could get: the free ones and those that can be evicted."""
        return self.pool.num_free + self.tree.num_evictable

    def match(self, token_ids: Sequence[int], namespace: str = "") -> Match:
        """Find the blocks that already hold the beginning of `token_ids`.

        Whole blocks only, and at least one token is left over: its forward pass gives the logits
        of the next token, and no cache holds those. So of 32 cached tokens in blocks of 16, the
        same 32 match only 16. What was computed in another namespace is never found.

        What is found counts as used now. The caller gets neither a reference nor a lock: until it
        locks the node, the blocks may be evicted.

        Returns:
            The node, the length in tokens, and as values the blocks. The node ends there exactly.
        """
        reusable = max(0, len(token_ids) - 1) // self.block_size * self.block_size
        return self.tree.match(token_ids[:reusable], namespace)

    def match_length(self, token_ids: Sequence[int], namespace: str = "") -> int:
        """The length in tokens of what `match` would find; does not count as a use."""
        reusable = max(0, len(token_ids) - 1) // self.block_size * self.block_size
        return min(reusable, self.tree.match_length(token_ids, namespace))

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

    def extend(self, leaf: RadixNode, token_ids: Sequence[int], blocks: Sequence[int]) -> bool:
        """Keep the full blocks that follow a leaf which the caller alone has locked.

        Returns:
            Whether it was done; if not, nothing has changed: see `RadixTree.extend`.
        """
        self.pool.check_used(blocks)
        if done := self.tree.extend(leaf, token_ids, blocks):
            self.pool.share(blocks)
        return done

    def lock(self, node: RadixNode) -> None:
        """Keep `node` and everything above it from eviction, until `unlock`."""
        self.tree.lock(node)

    def unlock(self, node: RadixNode) -> None:
        """Take one lock back."""
        self.tree.unlock(node)

    def drop(self, node: RadixNode) -> None:
        """Forget the prefix that ends at `node`, up to where another request uses it or branches.

        For keys and values of a request that came out as NaN. What it found in the cache goes too:
        the NaN may have come from there.
        """
        self.pool.release(self.tree.prune(node))

    def evict(self, num_blocks: int) -> int:
        """Give up to `num_blocks` blocks back, those used longest ago first.

        The tree forgets them, so that no match finds them again, and the cache is no longer
        their user. Locked ones stay.

        Returns:
            How many blocks the cache gave up. Unlocked blocks have no other user, so as many are
            free now.
        """
        blocks = self.tree.evict(num_blocks)
        self.pool.release(blocks)
        return len(blocks)

    def make_room(self, num_blocks: int) -> bool:
        """Evict until `num_blocks` blocks are free, and no more than that takes.

        Returns:
            Whether this many are free now. If that cannot be reached, nothing is evicted.
        """
        if num_blocks > self.num_available:
            return False
        self.evict(num_blocks - self.pool.num_free)
        return True
