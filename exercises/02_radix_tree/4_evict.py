"""Exercise 02.4: Evict what was used longest ago.

Remove up to `num_values` values: repeatedly take the tail of the leaf that has no lock and the
smallest `last_access`. Find that leaf by walking the tree. (The reference calls
`self._oldest_leaf()`, which keeps the candidates in a heap. Read it when yours passes.)

You have
- `self.roots.values()`: the roots of all namespaces; a root is no leaf
- `node.children`: a dict; its `values()` are nodes
- `node.lock_count`, `node.last_access`, `node.values`: how many users it has, a time, a list
- `self._cut(leaf, keep)`: shortens an unlocked leaf to its first `keep` values, or removes it if
  that is 0, and keeps the tree's counts; returns nothing

In a terminal: yaie check 02.4, yaie hint 02.4, yaie reset 02.4.
What this file does not define is inherited from yaie/engine/radix.py.
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
        raise NotImplementedError("Exercise 02.4: Evict what was used longest ago")
