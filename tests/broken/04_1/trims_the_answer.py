"""Searches for everything and shortens the answer, but not the node that is locked."""

from yaie.engine import prefix_cache as reference

EXPECT = "the node ends after 6 tokens"


class RadixCache(reference.RadixCache):
    def match(self, token_ids, namespace=""):
        found = self.tree.match(token_ids, namespace)
        if found.length and found.length == len(token_ids):
            found.values.pop()
            found.length -= self.block_size
        return found
