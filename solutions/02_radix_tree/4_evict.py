"""Solution of exercise 02.4: Evict what was used longest ago.

Remove up to `num_values` values: repeatedly take the tail of the leaf that has no lock and the
smallest `last_access`. Find that leaf by walking the tree. (The reference calls
`self._oldest_leaf()`, which keeps the candidates in a heap. Read it when yours passes.)

Generated from RadixTree.evict in yaie/engine/radix.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from typing import Any

from yaie.engine import radix as reference


class RadixTree(reference.RadixTree):
    def evict(self, num_values: int) -> list[Any]:
        """Remove up to `num_values` values, from the unlocked leaves used longest ago.

        A leaf that holds more than is needed loses its tail only: its beginning is what other
        sequences are most likely to share. A node whose last child is gone is a leaf from then
        on. Leaves of all namespaces compete; a root is no leaf.

        Returns:
            The removed values, in any order: fewer than asked for if everything left is locked.
        """
        evicted: list[Any] = []
        while len(evicted) < num_values:
            leaf = self._oldest_leaf()
            if leaf is None:
                break
            keep = max(0, len(leaf.values) - (num_values - len(evicted)))
            evicted.extend(leaf.values[keep:])
            self._cut(leaf, keep)
        return evicted
