"""Moves the node on and collects the values, but never adds to the length."""

from yaie.engine import radix as reference
from yaie.engine.radix import Match

EXPECT = "The node and the values moved on, but the length is still 0: add what each edge shares"


class RadixTree(reference.RadixTree):
    def match(self, token_ids, namespace=""):
        tokens, size = tuple(token_ids), self.block_size
        found = Match(self._root_of(namespace))
        now = self._tick()
        while child := found.node.children.get(tokens[found.length : found.length + size]):
            shared = self._shared_tokens(child.key, tokens, found.length)
            if shared < len(child.key):
                child = self.split(child, shared)

            child.last_access = now
            found.values.extend(child.values)
            found.node = child
        return found
