"""Walks to the leaves itself, oldest first, and overlooks that requests have locked some."""

from yaie.engine import prefix_cache as reference

EXPECT = "What is locked stays"


class RadixCache(reference.RadixCache):
    def evict(self, num_blocks):
        count = 0
        while count < num_blocks and (leaf := self.oldest_leaf()):
            self.pool.release([leaf.values.pop()])
            leaf.key = leaf.key[: len(leaf.values) * self.block_size]
            self.tree.num_values -= 1
            self.tree.num_evictable -= leaf.lock_count == 0
            if not leaf.values:
                siblings = leaf.parent.children
                del siblings[next(k for k, v in siblings.items() if v is leaf)]
            count += 1
        return count

    def oldest_leaf(self):
        leaves, stack = [], [self.tree.root]
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if node.values and not node.children:
                leaves.append(node)
        return min(leaves, key=lambda node: node.last_access, default=None)

    def make_room(self, num_blocks):
        if num_blocks > self.num_available:
            return False
        self.evict(num_blocks - self.pool.num_free)
        return True
