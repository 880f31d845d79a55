"""Stamps the whole edge and splits it then, so the unused half counts as used."""

from yaie.engine import radix as reference
from yaie.engine.radix import Match

EXPECT = "Stamp the upper half after the split"


class RadixTree(reference.RadixTree):
    def match(self, token_ids, namespace=""):
        tokens, size = tuple(token_ids), self.block_size
        found = Match(self._root_of(namespace))
        now = self._tick()
        while child := found.node.children.get(tokens[found.length : found.length + size]):
            shared = self._shared_tokens(child.key, tokens, found.length)
            child.last_access = now

            if shared < len(child.key):
                child = self.split(child, shared)

            child.last_access = now
            found.length += shared
            found.values.extend(child.values)
            found.node = child
        return found
