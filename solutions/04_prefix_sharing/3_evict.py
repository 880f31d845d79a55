"""Solution of exercise 04.3: Give blocks back when memory runs short.

`evict` gives the blocks used longest ago back to the pool. `make_room` evicts until a request's
blocks are free: no more than needed, and nothing at all if it cannot succeed.

Generated from RadixCache.evict, RadixCache.make_room in yaie/engine/prefix_cache.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from yaie.engine import prefix_cache as reference


class RadixCache(reference.RadixCache):
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
