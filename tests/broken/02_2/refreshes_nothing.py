"""Forgets the access time."""

from yaie.engine import radix as reference
from yaie.engine.radix import Match

EXPECT = "gave its path no new `last_access`"


class RadixTree(reference.RadixTree):
    def match(self, token_ids, namespace=""):
        tokens, size = tuple(token_ids), self.block_size
        found = Match(self._root_of(namespace))
        while child := found.node.children.get(tokens[found.length : found.length + size]):
            shared = self._shared_tokens(child.key, tokens, found.length)
            if shared < len(child.key):
                child = self.split(child, shared)

            found.length += shared
            found.values.extend(child.values)
            found.node = child
        return found
