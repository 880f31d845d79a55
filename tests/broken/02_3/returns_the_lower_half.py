"""Returns the node it was given."""

from yaie.engine import radix as reference
from yaie.engine.radix import RadixNode

EXPECT = "It returned the lower half"


class RadixTree(reference.RadixTree):
    def split(self, node, num_tokens):
        if not 0 < num_tokens < len(node.key) or num_tokens % self.block_size:
            raise ValueError(f"cannot cut {len(node.key)} tokens at {num_tokens}")
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
        return node
