"""Solution of exercise 03.2: Release blocks, free those without users.

A user of some blocks is done with them. Count one user less for each; a block without users goes
back to the free ones. If a block has fewer users than it is to lose, raise ValueError and release
nothing.

Generated from BlockPool.release in yaie/engine/kv_cache.py.
Edit it there, and run `python -m yaie.course build`.
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
        blocks = list(blocks)
        for block, times in Counter(blocks).items():
            if self.ref_count(block) < times:
                raise ValueError(
                    f"release: block {block} has {self.ref_count(block)} users and was "
                    f"released {times} times"
                )
        for block in blocks:
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self.free_block_list.append(block)
