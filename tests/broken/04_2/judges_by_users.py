"""Takes every block with one user for new: so does a second request's copy of a cached prefix."""

from yaie.engine import prefix_cache as reference

EXPECT = "New is what the tree did not have"


class RadixCache(reference.RadixCache):
    def insert(self, token_ids, blocks, namespace=""):
        num_full = len(token_ids) // self.block_size
        if len(blocks) < num_full:
            raise ValueError("blocks: too few")
        node, _ = self.tree.insert(token_ids, blocks[:num_full], namespace)
        self.pool.share(b for b in blocks[:num_full] if self.pool.ref_count(b) == 1)
        return node
