"""Returns which blocks were evicted, where their number is wanted."""

from yaie.engine import prefix_cache as reference

EXPECT = "how many blocks, not which"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        blocks = self.tree.evict(num_blocks)
        self.pool.release(blocks)
        return blocks

    def make_room(self, num_blocks):
        if num_blocks > self.num_available:
            return False
        self.evict(num_blocks - self.pool.num_free)
        return True
