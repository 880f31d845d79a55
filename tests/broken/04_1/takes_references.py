"""Counts the request as a user already, though its table will count it again."""

from yaie.engine import prefix_cache as reference

EXPECT = "A match takes no reference"


class RadixCache(reference.RadixCache):
    def match(self, token_ids, namespace=""):
        found = self.tree.match(token_ids[:-1], namespace)
        self.pool.share(found.values)
        return found
