"""Slices blocks by a number of tokens, so that most new blocks are never counted."""

from yaie.engine import prefix_cache as reference

EXPECT = "`length`, which counts tokens"


class RadixCache(reference.RadixCache):
    def insert(self, token_ids, blocks, namespace=""):
        num_full = len(token_ids) // self.block_size
        node, length = self.tree.insert(token_ids, blocks[:num_full], namespace)
        self.pool.share(blocks[length:num_full])
        return node
