"""Checks that every block has a user, not that it has enough of them."""

from yaie.engine import kv_cache as reference

EXPECT = "count how often a block occurs"


class BlockPool(reference.BlockPool):
    def release(self, blocks):
        blocks = list(blocks)
        for block in blocks:
            if self.ref_count(block) == 0:
                raise ValueError(f"block {block} has no users")
        for block in blocks:
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self.free_block_list.append(block)
