"""Makes room and does not say so."""

from yaie.engine import prefix_cache as reference

EXPECT = "returned None, expected True"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        blocks = self.tree.evict(num_blocks)
        self.pool.release(blocks)
        return len(blocks)

    def make_room(self, num_blocks):
        if num_blocks > self.num_available:
            return False
        self.evict(num_blocks - self.pool.num_free)
