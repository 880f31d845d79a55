"""Returns the values and leaves them in the tree."""

from yaie.engine import radix as reference

EXPECT = "must be gone"


class RadixTree(reference.RadixTree):
    def evict(self, num_values):
        leaves, stack, evicted = [], list(self.roots.values()), []
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if node.parent is not None and not node.children and node.lock_count == 0:
                leaves.append(node)
        for leaf in sorted(leaves, key=lambda node: node.last_access):
            keep = max(0, len(leaf.values) - (num_values - len(evicted)))
            evicted.extend(leaf.values[keep:])
        return evicted
