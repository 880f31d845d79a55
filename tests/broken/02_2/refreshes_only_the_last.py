"""Stamps the access time of the last node only."""

from yaie.engine import radix as reference
from yaie.engine.radix import Match

EXPECT = "did not refresh `last_access` all the way"


class RadixTree(reference.RadixTree):
    def match(self, token_ids, namespace=""):
        tokens, size = tuple(token_ids), self.block_size
        found = Match(self._root_of(namespace))
        now = self._tick()
        while child := found.node.children.get(tokens[found.length : found.length + size]):
            shared = self._shared_tokens(child.key, tokens, found.length)
            if shared < len(child.key):
                child = self.split(child, shared)

            found.length += shared
            found.values.extend(child.values)
            found.node = child
        found.node.last_access = now
        return found
