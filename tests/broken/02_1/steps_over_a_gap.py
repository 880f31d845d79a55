"""Goes on with the next token when one is missing."""

from yaie.course.lessons import trie as reference

EXPECT = "a prefix ends there, for good"


class TokenTrie(reference.TokenTrie):
    def find_shared_prefixes(self, token_ids):
        node, length = self.root, 0
        for token in token_ids:
            if token in node.children:
                node, length = node.children[token], length + 1
        return (sorted(node.request_ids, key=str), length) if length else ([], 0)
