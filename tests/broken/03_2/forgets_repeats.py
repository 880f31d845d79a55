"""Makes a set of the blocks, so that two users of one block count as one."""

from collections import Counter

from yaie.engine import kv_cache as reference

EXPECT = "a set forgets that"


class BlockPool(reference.BlockPool):
    def release(self, blocks):
        blocks = list(blocks)
        for block, times in Counter(blocks).items():
            if self.ref_count(block) < times:
                raise ValueError(f"block {block} has too few users")
        for block in set(blocks):
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self.free_block_list.append(block)
