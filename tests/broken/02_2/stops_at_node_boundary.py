"""Stops at the boundary of a node, when the match ends inside an edge."""

from yaie.engine import radix as reference
from yaie.engine.radix import Match

EXPECT = "stopped at the node's boundary"


class RadixTree(reference.RadixTree):
    def match(self, token_ids, namespace=""):
        tokens, size = tuple(token_ids), self.block_size
        found = Match(self._root_of(namespace))
        now = self._tick()
        while child := found.node.children.get(tokens[found.length : found.length + size]):
            shared = self._shared_tokens(child.key, tokens, found.length)
            if shared < len(child.key):
                break

            child.last_access = now
            found.length += shared
            found.values.extend(child.values)
            found.node = child
        return found
