"""Walks from the first root only."""

from yaie.engine import radix as reference

EXPECT = "all namespaces"


class RadixTree(reference.RadixTree):
    def evict(self, num_values):
        evicted = []
        while len(evicted) < num_values:
            leaves, stack = [], [self.root]
            while stack:
                node = stack.pop()
                stack.extend(node.children.values())
                if node.parent is not None and not node.children and node.lock_count == 0:
                    leaves.append(node)
            if not leaves:
                break
            leaf = min(leaves, key=lambda node: node.last_access)
            keep = max(0, len(leaf.values) - (num_values - len(evicted)))
            evicted.extend(leaf.values[keep:])
            self._cut(leaf, keep)
        return evicted
