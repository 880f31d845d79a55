"""Begins to count at one, as if the root stood for a token."""

from yaie.course.lessons import trie as reference

EXPECT = "begin to count at 0"


class TokenTrie(reference.TokenTrie):
    def find_shared_prefixes(self, token_ids):
        node, length = self.root, 1
        for token in token_ids:
            if token not in node.children:
                break
            node, length = node.children[token], length + 1
        return (sorted(node.request_ids, key=str), length) if length > 1 else ([], 0)
