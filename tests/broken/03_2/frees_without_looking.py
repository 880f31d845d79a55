"""Counts down, and frees the block at every call."""

from collections import Counter

from yaie.engine import kv_cache as reference

EXPECT = "freed while somebody still reads it"


class BlockPool(reference.BlockPool):
    def release(self, blocks):
        blocks = list(blocks)
        for block, times in Counter(blocks).items():
            if self.ref_count(block) < times:
                raise ValueError(f"block {block} has too few users")
        for block in blocks:
            self._ref_counts[block] -= 1
            self.free_block_list.append(block)
