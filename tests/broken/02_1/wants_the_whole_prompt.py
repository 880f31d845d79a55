"""Finds nothing unless the whole prompt is in the trie."""

from yaie.course.lessons import trie as reference

EXPECT = "its longest known prefix counts"


class TokenTrie(reference.TokenTrie):
    def find_shared_prefixes(self, token_ids):
        node = self.root
        for token in token_ids:
            if token not in node.children:
                return [], 0
            node = node.children[token]
        return (sorted(node.request_ids, key=str), len(token_ids)) if token_ids else ([], 0)
