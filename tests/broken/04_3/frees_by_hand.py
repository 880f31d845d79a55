"""Puts blocks on the free list without counting: they are free and have a user."""

from yaie.engine import prefix_cache as reference

EXPECT = "behind the pool's back"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        blocks = self.tree.evict(num_blocks)
        self.pool.free_block_list.extend(blocks)
        return len(blocks)

    def make_room(self, num_blocks):
        if num_blocks > self.num_available:
            return False
        self.evict(num_blocks - self.pool.num_free)
        return True
