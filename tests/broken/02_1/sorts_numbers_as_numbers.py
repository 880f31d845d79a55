"""Sorts ids by their value, so 2 comes before 10."""

from yaie.course.lessons import trie as reference

EXPECT = "they may be of different types"


class TokenTrie(reference.TokenTrie):
    def find_shared_prefixes(self, token_ids):
        node, length = self.root, 0
        for token in token_ids:
            if token not in node.children:
                break
            node, length = node.children[token], length + 1
        return (sorted(node.request_ids), length) if length else ([], 0)
