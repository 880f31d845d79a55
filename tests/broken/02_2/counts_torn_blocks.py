"""Compares token by token, and does not round down to whole blocks."""

from yaie.engine import radix as reference
from yaie.engine.radix import Match, shared_prefix_length

EXPECT = "Round what is shared down"


class RadixTree(reference.RadixTree):
    def match(self, token_ids, namespace=""):
        tokens, size = tuple(token_ids), self.block_size
        found = Match(self._root_of(namespace))
        now = self._tick()
        while child := found.node.children.get(tokens[found.length : found.length + size]):
            shared = shared_prefix_length(child.key, tokens[found.length :])
            if shared < len(child.key):
                child = self.split(child, shared)

            child.last_access = now
            found.length += shared
            found.values.extend(child.values)
            found.node = child
        return found
