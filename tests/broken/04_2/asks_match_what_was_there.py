"""Uses match to learn what was there: it leaves a token over, and so a block too many is new."""

from yaie.engine import prefix_cache as reference

EXPECT = "so it does not say what was there"


class RadixCache(reference.RadixCache):
    def insert(self, token_ids, blocks, namespace=""):
        num_full = len(token_ids) // self.block_size
        if len(blocks) < num_full:
            raise ValueError("blocks: too few")
        num_old = len(self.match(token_ids, namespace).values)
        node, _ = self.tree.insert(token_ids, blocks[:num_full], namespace)
        self.pool.share(blocks[num_old:num_full])
        return node
