"""Evicts all that can be evicted, whatever is needed."""

from yaie.engine import prefix_cache as reference

EXPECT = "only what is missing is evicted"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        blocks = self.tree.evict(num_blocks)
        self.pool.release(blocks)
        return len(blocks)

    def make_room(self, num_blocks):
        if num_blocks > self.num_available:
            return False
        if num_blocks > self.pool.num_free:
            self.evict(self.num_cached)
        return True
