"""Takes blocks out of the tree and releases none: they are lost."""

from yaie.engine import prefix_cache as reference

EXPECT = "neither cached nor free"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        return len(self.tree.evict(num_blocks))

    def make_room(self, num_blocks):
        if num_blocks > self.num_available:
            return False
        self.evict(num_blocks - self.pool.num_free)
        return True
