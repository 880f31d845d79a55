"""Returns the node whose edge matched only in part, with all of its values."""

from yaie.engine import radix as reference
from yaie.engine.radix import Match

EXPECT = "the whole edge, but only part of it matched"


class RadixTree(reference.RadixTree):
    def match(self, token_ids, namespace=""):
        tokens, size = tuple(token_ids), self.block_size
        found = Match(self._root_of(namespace))
        now = self._tick()
        while child := found.node.children.get(tokens[found.length : found.length + size]):
            shared = self._shared_tokens(child.key, tokens, found.length)
            child.last_access = now
            found.length += shared
            found.values.extend(child.values)
            found.node = child
        return found
