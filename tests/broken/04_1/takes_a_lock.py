"""Locks what it found, and its caller, who locks too, unlocks once only."""

from yaie.engine import prefix_cache as reference

EXPECT = "A match takes no lock"


class RadixCache(reference.RadixCache):
    def match(self, token_ids, namespace=""):
        found = self.tree.match(token_ids[:-1], namespace)
        self.tree.lock(found.node)
        return found
