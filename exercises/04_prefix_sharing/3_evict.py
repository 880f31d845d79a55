"""Exercise 04.3: Give blocks back when memory runs short.

`evict` gives the blocks used longest ago back to the pool. `make_room` evicts until a request's
blocks are free: no more than needed, and nothing at all if it cannot succeed.

You have
- `self.tree.evict(number)`: takes up to `number` unlocked blocks out of the tree, those used
  longest ago first, and returns them as a list; none if `number` is 0 or less
- `self.pool.release(blocks)`: one user less for each; a block without users is free
- `self.pool.num_free`: an int
- `self.num_available`: an int, the free blocks and those that could be evicted now

In a terminal: yaie check 04.3, yaie hint 04.3, yaie reset 04.3.
What this file does not define is inherited from yaie/engine/prefix_cache.py.
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
        raise NotImplementedError("Exercise 04.3: Give blocks back when memory runs short")

    def make_room(self, num_blocks: int) -> bool:
        """Evict until `num_blocks` blocks are free, and no more than that takes.

        Returns:
            Whether this many are free now. If that cannot be reached, nothing is evicted.
        """
        raise NotImplementedError("Exercise 04.3: Give blocks back when memory runs short")
