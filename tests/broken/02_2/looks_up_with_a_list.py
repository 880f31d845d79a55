"""Looks a child up by a slice of a list."""

from yaie.engine import radix as reference
from yaie.engine.radix import Match

EXPECT = "make a tuple of token_ids"


class RadixTree(reference.RadixTree):
    def match(self, token_ids, namespace=""):
        tokens, size = token_ids, self.block_size
        found = Match(self._root_of(namespace))
        now = self._tick()
        while child := found.node.children.get(tokens[found.length : found.length + size]):
            shared = self._shared_tokens(child.key, tokens, found.length)
            if shared < len(child.key):
                child = self.split(child, shared)

            child.last_access = now
            found.length += shared
            found.values.extend(child.values)
            found.node = child
        return found
