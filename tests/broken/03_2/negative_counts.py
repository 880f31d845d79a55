"""Goes on counting below zero, without a word."""

from yaie.engine import kv_cache as reference

EXPECT = "its count went to -1"


class BlockPool(reference.BlockPool):
    def release(self, blocks):
        blocks = list(blocks)
        for block in blocks:
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self.free_block_list.append(block)
