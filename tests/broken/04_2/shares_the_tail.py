"""Takes a reference to the block that is not full, which the tree does not name: it leaks."""

from yaie.engine import prefix_cache as reference

EXPECT = "Block 2 is not full"


class RadixCache(reference.RadixCache):
    def insert(self, token_ids, blocks, namespace=""):
        node, length = self.tree.insert(token_ids, blocks, namespace)
        self.pool.share(blocks[length // self.block_size :])
        return node
