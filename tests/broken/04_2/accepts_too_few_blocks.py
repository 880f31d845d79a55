"""Keeps as many tokens as there are blocks, and hides that the caller's table is too short."""

from yaie.engine import prefix_cache as reference

EXPECT = "should raise ValueError"


class RadixCache(reference.RadixCache):
    def insert(self, token_ids, blocks, namespace=""):
        num_full = min(len(token_ids) // self.block_size, len(blocks))
        tokens = token_ids[: num_full * self.block_size]
        node, length = self.tree.insert(tokens, blocks[:num_full], namespace)
        self.pool.share(blocks[length // self.block_size : num_full])
        return node
