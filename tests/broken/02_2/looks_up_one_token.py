"""Looks a child up by its first token, whatever the block size."""

from yaie.engine import radix as reference
from yaie.engine.radix import Match

EXPECT = "is that what you looked up"


class RadixTree(reference.RadixTree):
    def match(self, token_ids, namespace=""):
        tokens = tuple(token_ids)
        found = Match(self._root_of(namespace))
        now = self._tick()
        while child := found.node.children.get(tokens[found.length : found.length + 1]):
            shared = self._shared_tokens(child.key, tokens, found.length)
            if shared < len(child.key):
                child = self.split(child, shared)

            child.last_access = now
            found.length += shared
            found.values.extend(child.values)
            found.node = child
        return found
