"""Fills the last block up with a padding token and caches it, though it is not full."""

from yaie.engine import prefix_cache as reference

EXPECT = "The tree keeps full blocks only"


class RadixCache(reference.RadixCache):
    def insert(self, token_ids, blocks, namespace=""):
        padding = -len(token_ids) % self.block_size
        padded = [*token_ids, *([0] * padding)]
        node, length = self.tree.insert(padded, blocks, namespace)
        num_full = len(padded) // self.block_size
        self.pool.share(blocks[length // self.block_size : num_full])
        return node
