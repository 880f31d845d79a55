"""Frees blocks and leaves their nodes in the tree: the next match finds somebody else's tokens."""

from yaie.engine import prefix_cache as reference

EXPECT = "the tree still names them"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        found, stack = [], [self.tree.root]
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if node.lock_count == 0:
                found.extend(b for b in node.values if self.pool.ref_count(b) == 1)
        self.pool.release(found[:num_blocks])
        return len(found[:num_blocks])

    def make_room(self, num_blocks):
        if num_blocks > self.num_available:
            return False
        self.evict(num_blocks - self.pool.num_free)
        return True
