"""Reads an iterator to its end while checking."""

from collections import Counter

from yaie.engine import kv_cache as reference

EXPECT = "can be read only once"


class BlockPool(reference.BlockPool):
    def release(self, blocks):
        for block, times in Counter(blocks).items():
            if self.ref_count(block) < times:
                raise ValueError(f"block {block} has too few users")
        for block in blocks:
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self.free_block_list.append(block)
