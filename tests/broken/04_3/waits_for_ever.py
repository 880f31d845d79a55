"""Goes on evicting until there is room, and there never is."""

from yaie.engine import prefix_cache as reference

EXPECT = "did not finish"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        blocks = self.tree.evict(num_blocks)
        self.pool.release(blocks)
        return len(blocks)

    def make_room(self, num_blocks):
        while self.pool.num_free < num_blocks:
            self.evict(1)
        return True
