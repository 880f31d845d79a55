"""Evicts as many blocks as are wanted, though some are free already."""

from yaie.engine import prefix_cache as reference

EXPECT = "Free blocks count"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        blocks = self.tree.evict(num_blocks)
        self.pool.release(blocks)
        return len(blocks)

    def make_room(self, num_blocks):
        if num_blocks > self.num_available:
            return False
        self.evict(num_blocks)
        return True
