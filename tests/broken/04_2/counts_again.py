"""Shares all full blocks each time, also those that the tree had."""

from yaie.engine import prefix_cache as reference

EXPECT = "share only those it had not"


class RadixCache(reference.RadixCache):
    def insert(self, token_ids, blocks, namespace=""):
        num_full = len(token_ids) // self.block_size
        node, _ = self.tree.insert(token_ids, blocks[:num_full], namespace)
        self.pool.share(blocks[:num_full])
        return node
