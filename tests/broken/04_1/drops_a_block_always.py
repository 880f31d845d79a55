"""Leaves the last full block out even if a tail behind it is left to compute."""

from yaie.engine import prefix_cache as reference

EXPECT = "a block too few"


class RadixCache(reference.RadixCache):
    def match(self, token_ids, namespace=""):
        num_blocks = max(0, len(token_ids) // self.block_size - 1)
        return self.tree.match(token_ids[: num_blocks * self.block_size], namespace)
