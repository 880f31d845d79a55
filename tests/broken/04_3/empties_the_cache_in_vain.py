"""Evicts first and looks afterwards whether it was enough."""

from yaie.engine import prefix_cache as reference

EXPECT = "what was evicted for it is lost"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        blocks = self.tree.evict(num_blocks)
        self.pool.release(blocks)
        return len(blocks)

    def make_room(self, num_blocks):
        self.evict(num_blocks - self.pool.num_free)
        return self.pool.num_free >= num_blocks
