"""Says that it evicted what was asked for, though there was less."""

from yaie.engine import prefix_cache as reference

EXPECT = "how many there were"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        self.pool.release(self.tree.evict(num_blocks))
        return num_blocks

    def make_room(self, num_blocks):
        if num_blocks > self.num_available:
            return False
        self.evict(num_blocks - self.pool.num_free)
        return True
