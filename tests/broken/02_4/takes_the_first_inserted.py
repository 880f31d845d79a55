"""Evicts in the order of insertion, whatever was used since."""

from yaie.engine import radix as reference

EXPECT = "Something else was used longer ago"


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
            leaf = leaves[-1]
            keep = max(0, len(leaf.values) - (num_values - len(evicted)))
            evicted.extend(leaf.values[keep:])
            self._cut(leaf, keep)
        return evicted
