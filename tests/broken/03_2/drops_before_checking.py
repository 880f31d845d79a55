"""Drops the count and checks it after that."""

from yaie.engine import kv_cache as reference

EXPECT = "count was dropped before the check"


class BlockPool(reference.BlockPool):
    def release(self, blocks):
        for block in list(blocks):
            self._ref_counts[block] -= 1
            if self._ref_counts[block] < 0:
                raise ValueError(f"block {block} has no users")
            if self._ref_counts[block] == 0:
                self.free_block_list.append(block)
