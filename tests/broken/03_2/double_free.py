"""Frees a block that is free already."""

from yaie.engine import kv_cache as reference

EXPECT = "block 7 was freed twice"


class BlockPool(reference.BlockPool):
    def release(self, blocks):
        for block in list(blocks):
            self._ref_counts[block] -= 1
            if self._ref_counts[block] <= 0:
                self._ref_counts[block] = 0
                self.free_block_list.append(block)
