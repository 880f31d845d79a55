"""Returns the beginning of the leaf while its tail is cut off."""

from yaie.engine import radix as reference

EXPECT = "That is the beginning of a leaf"


class RadixTree(reference.RadixTree):
    def evict(self, num_values):
        evicted = []
        while len(evicted) < num_values:
            leaves, stack = [], list(self.roots.values())
            while stack:
                node = stack.pop()
                stack.extend(node.children.values())
                if node.parent is not None and not node.children and node.lock_count == 0:
                    leaves.append(node)
            if not leaves:
                break
            leaf = min(leaves, key=lambda node: node.last_access)
            keep = max(0, len(leaf.values) - (num_values - len(evicted)))
            evicted.extend(leaf.values[: len(leaf.values) - keep])
            self._cut(leaf, keep)
        return evicted
