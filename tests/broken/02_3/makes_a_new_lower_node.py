"""Shortens the node and moves the rest to a new one, so handles point too high."""

from yaie.engine import radix as reference
from yaie.engine.radix import RadixNode

EXPECT = "make the upper one new"


class RadixTree(reference.RadixTree):
    def split(self, node, num_tokens):
        if not 0 < num_tokens < len(node.key) or num_tokens % self.block_size:
            raise ValueError(f"cannot cut {len(node.key)} tokens at {num_tokens}")
        num_values = num_tokens // self.block_size
        lower = RadixNode(node.key[num_tokens:], node.values[num_values:], node)
        lower.lock_count = node.lock_count
        lower.last_access = node.last_access
        lower.request_ids = set(node.request_ids)
        lower.children = node.children
        for child in lower.children.values():
            child.parent = lower
        node.children = {lower.key[: self.block_size]: lower}
        node.key, node.values = node.key[:num_tokens], node.values[:num_values]
        self.num_nodes += 1
        return node
