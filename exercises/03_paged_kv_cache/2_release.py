"""Exercise 03.2: Release blocks, free those without users.

A user of some blocks is done with them. Count one user less for each; a block without users goes
back to the free ones. If a block has fewer users than it is to lose, raise ValueError and release
nothing.

You have
- `self._ref_counts`: a list of ints, the users of each block
- `self.free_block_list`: a deque of the free blocks
- `self.ref_count(block)`: returns the users of a block; ValueError if there is no such block
- `Counter(blocks).items()`: pairs of a block and how often it occurs
- `blocks`: any iterable of ints, perhaps a generator, which can be read once

In a terminal: yaie check 03.2, yaie hint 03.2, yaie reset 03.2.
What this file does not define is inherited from yaie/engine/kv_cache.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from yaie.engine import kv_cache as reference


class BlockPool(reference.BlockPool):
    def release(self, blocks: Iterable[int]) -> None:
        """Count one user less for each of `blocks`. A block without users is free again.

        Args:
            blocks: block numbers, in any iterable. One that occurs twice loses two users.

        Raises:
            ValueError: a number is outside the pool, or a block has fewer users than it is to
                lose. Nothing is released: the pool is as it was.
        """
        raise NotImplementedError("Exercise 03.2: Release blocks, free those without users")
