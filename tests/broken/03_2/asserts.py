"""Refuses by an assertion, which `python -O` removes."""

from collections import Counter

from yaie.engine import kv_cache as reference

EXPECT = "got AssertionError"


class BlockPool(reference.BlockPool):
    def release(self, blocks):
        blocks = list(blocks)
        for block, times in Counter(blocks).items():
            assert self.ref_count(block) >= times
        for block in blocks:
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self.free_block_list.append(block)
