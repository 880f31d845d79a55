"""Exercise 02.3: Split an edge and lose nothing.

Cut the edge into `node` in two. Make a new upper node for the first `num_tokens` tokens and hang
`node`, with the rest, below it. Locks, request ids and access time hold for both halves.

You have
- `RadixNode(key, values, parent)`: makes a node without children, with `lock_count` 0,
  `last_access` 0 and no `request_ids`
- `node.key`, `node.values`: a string, a character per token; a list with a value for every block
  of it. A `Match` may hold the same list: leave it as it is
- `node.parent`, `node.children`: a node; a dict from the first block of a child's key to the
  child
- `node.lock_count`, `node.last_access`, `node.request_ids`: an int, a time, a set
- `self.block_size`, `self.num_nodes`: tokens per block; the count of nodes, which the split
  changes

In a terminal: yaie check 02.3, yaie hint 02.3, yaie reset 02.3.
What this file does not define is inherited from yaie/engine/radix.py.
"""

from __future__ import annotations

from yaie.engine import radix as reference
from yaie.engine.radix_node import RadixNode


class RadixTree(reference.RadixTree):
    def split(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Cut the edge into `node` after `num_tokens` tokens.

        A new upper node takes the first part of the key and of the values, and `node`'s place
        under its parent. `node` keeps the rest, and its children, and hangs below the new one: it
        ends where it did, so a caller that holds it still has the same prefix. Both halves have
        its locks, request ids and time of last access. `num_nodes` grows by one.

        Returns:
            The new upper node.

        Raises:
            ValueError: `num_tokens` is not a multiple of `block_size`, or leaves a half empty.
        """
        raise NotImplementedError("Exercise 02.3: Split an edge and lose nothing")
