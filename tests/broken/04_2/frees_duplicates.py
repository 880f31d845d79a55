"""Releases the caller's duplicates, though its table still points at them."""

from yaie.engine import prefix_cache as reference

EXPECT = "table still points at them"


class RadixCache(reference.RadixCache):
    def insert(self, token_ids, blocks, namespace=""):
        num_full = len(token_ids) // self.block_size
        node, length = self.tree.insert(token_ids, blocks[:num_full], namespace)
        num_old = length // self.block_size
        self.pool.share(blocks[num_old:num_full])
        ours = self.tree.match(token_ids, namespace).values
        theirs = blocks[:num_old]
        self.pool.release(b for a, b in zip(ours, theirs, strict=False) if a != b)
        return node
