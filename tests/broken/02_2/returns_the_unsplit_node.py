"""Right length and values, but the node goes on behind the match."""

from yaie.engine import radix as reference
from yaie.engine.radix import Match

EXPECT = "That node goes on behind the match"


class RadixTree(reference.RadixTree):
    def match(self, token_ids, namespace=""):
        tokens, size = tuple(token_ids), self.block_size
        found = Match(self._root_of(namespace))
        now = self._tick()
        while child := found.node.children.get(tokens[found.length : found.length + size]):
            shared = self._shared_tokens(child.key, tokens, found.length)
            child.last_access = now
            found.length += shared
            found.values.extend(child.values[: shared // self.block_size])
            found.node = child
            if shared < len(child.key):
                break
        return found
