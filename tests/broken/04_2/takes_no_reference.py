"""Names blocks in the tree without being a user of them: they are free when the request ends."""

from yaie.engine import prefix_cache as reference

EXPECT = "the cache is no user of"


class RadixCache(reference.RadixCache):
    def insert(self, token_ids, blocks, namespace=""):
        num_full = len(token_ids) // self.block_size
        if len(blocks) < num_full:
            raise ValueError("blocks: too few")
        node, _ = self.tree.insert(token_ids, blocks[:num_full], namespace)
        return node
