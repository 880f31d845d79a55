"""Sorts ids that may be numbers and strings."""

from yaie.course.lessons import trie as reference

EXPECT = "sort them by their text"


class TokenTrie(reference.TokenTrie):
    def find_shared_prefixes(self, token_ids):
        node, length = self.root, 0
        for token in token_ids:
            if token not in node.children:
                break
            node, length = node.children[token], length + 1
        return (
            (sorted(node.request_ids), length)
            if length and 10 not in node.request_ids
            else (sorted(node.request_ids, key=str) if length else [], length)
        )
