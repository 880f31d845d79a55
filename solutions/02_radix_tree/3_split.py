"""Solution of exercise 02.3: Split an edge and lose nothing.

Cut the edge into `node` in two. Make a new upper node for the first `num_tokens` tokens and hang
`node`, with the rest, below it. Locks, request ids and access time hold for both halves.

Generated from RadixTree.split in yaie/engine/radix.py.
Edit it there, and run `python -m yaie.course build`.
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
        if not 0 < num_tokens < len(node.key) or num_tokens % self.block_size:
            raise ValueError(
                f"num_tokens must be a multiple of {self.block_size} inside the node's "
                f"{len(node.key)} tokens, got {num_tokens}"
            )
        num_values = num_tokens // self.block_size
        upper = RadixNode(node.key[:num_tokens], node.values[:num_values], node.parent)
        upper.lock_count = node.lock_count
        upper.last_access = node.last_access
        upper.request_ids = set(node.request_ids)
        node.parent.children[upper.key[: self.block_size]] = upper
        node.key = node.key[num_tokens:]
        node.values = node.values[num_values:]
        node.parent = upper
        upper.children[node.key[: self.block_size]] = node
        self.num_nodes += 1
        return upper
