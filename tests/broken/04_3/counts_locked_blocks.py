"""Promises blocks that it could only get by evicting what a request has locked."""

from yaie.engine import prefix_cache as reference

EXPECT = "what is locked cannot be evicted"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        blocks = self.tree.evict(num_blocks)
        self.pool.release(blocks)
        return len(blocks)

    def make_room(self, num_blocks):
        if num_blocks > self.pool.num_free + self.num_cached:
            return False
        self.evict(num_blocks - self.pool.num_free)
        return True
