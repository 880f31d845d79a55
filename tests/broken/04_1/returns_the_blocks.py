"""Returns only the blocks, so that the caller has no node to lock."""

from yaie.engine import prefix_cache as reference

EXPECT = "a Match is wanted"


class RadixCache(reference.RadixCache):
    def match(self, token_ids, namespace=""):
        return self.tree.match(token_ids[:-1], namespace).values
