"""Adds the length of the edge instead of the tokens that agree."""

from yaie.engine import radix as reference
from yaie.engine.radix import Match

EXPECT = "The whole edge was counted"


class RadixTree(reference.RadixTree):
    def match(self, token_ids, namespace=""):
        tokens, size = tuple(token_ids), self.block_size
        found = Match(self._root_of(namespace))
        now = self._tick()
        while child := found.node.children.get(tokens[found.length : found.length + size]):
            child.last_access = now
            found.length += len(child.key)
            found.values.extend(child.values)
            found.node = child
        return found
