"""Removes the leaf from its parent without keeping the counts."""

from yaie.engine import radix as reference

EXPECT = "keep this count"


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
            evicted.extend(leaf.values[keep:])
            if keep:
                leaf.key = leaf.key[: keep * self.block_size]
                leaf.values = leaf.values[:keep]
            else:
                del leaf.parent.children[leaf.key[: self.block_size]]
        return evicted
