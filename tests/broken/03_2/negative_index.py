"""Takes block -1 for the last one."""

from collections import Counter

from yaie.engine import kv_cache as reference

EXPECT = "A negative index counts from the end"


class BlockPool(reference.BlockPool):
    def release(self, blocks):
        blocks = list(blocks)
        for block, times in Counter(blocks).items():
            if self._ref_counts[block] < times:
                raise ValueError(f"block {block} has too few users")
        for block in blocks:
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self.free_block_list.append(block)
