"""Checks each block just before it releases it."""

from yaie.engine import kv_cache as reference

EXPECT = "look at all blocks first"


class BlockPool(reference.BlockPool):
    def release(self, blocks):
        for block in list(blocks):
            if self.ref_count(block) == 0:
                raise ValueError(f"block {block} has no users")
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self.free_block_list.append(block)
