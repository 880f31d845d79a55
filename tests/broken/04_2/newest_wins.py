"""Puts the newer copy of a prefix into the tree, over blocks that others have matched."""

from yaie.engine import prefix_cache as reference

EXPECT = "somebody may have matched them"


class RadixCache(reference.RadixCache):
    def insert(self, token_ids, blocks, namespace=""):
        num_full = len(token_ids) // self.block_size
        if len(blocks) < num_full:
            raise ValueError("blocks: too few")
        node, length = self.tree.insert(token_ids, blocks[:num_full], namespace)
        end, above = num_full, node
        while above.parent is not None:
            start = end - len(above.values)
            self.pool.share(blocks[start:end])
            if start * self.block_size < length:
                self.pool.release(above.values)
            above.values = list(blocks[start:end])
            end, above = start, above.parent
        return node
