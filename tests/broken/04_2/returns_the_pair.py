"""Returns what the tree returned: a node and a length."""

from yaie.engine import prefix_cache as reference

EXPECT = "the node at which the tokens end is wanted"


class RadixCache(reference.RadixCache):
    def insert(self, token_ids, blocks, namespace=""):
        num_full = len(token_ids) // self.block_size
        node, length = self.tree.insert(token_ids, blocks[:num_full], namespace)
        self.pool.share(blocks[length // self.block_size : num_full])
        return node, length
