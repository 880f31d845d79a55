"""Does not look at the locks."""

from yaie.engine import radix as reference

EXPECT = "A locked node was evicted"


class RadixTree(reference.RadixTree):
    def evict(self, num_values):
        evicted = []
        while len(evicted) < num_values:
            leaves, stack = [], list(self.roots.values())
            while stack:
                node = stack.pop()
                stack.extend(node.children.values())
                if node.parent is not None and not node.children:
                    leaves.append(node)
            if not leaves:
                break
            leaf = min(leaves, key=lambda node: node.last_access)
            keep = max(0, len(leaf.values) - (num_values - len(evicted)))
            evicted.extend(leaf.values[keep:])
            self._cut(leaf, keep)
        return evicted
