"""Steps to a child that may not be there."""

from yaie.course.lessons import trie as reference

EXPECT = "ask before you step"


class TokenTrie(reference.TokenTrie):
    def find_shared_prefixes(self, token_ids):
        node = self.root
        for token in token_ids:
            node = node.children[token]
        return sorted(node.request_ids, key=str), len(token_ids)
