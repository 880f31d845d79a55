"""Returns the root's requests, all of them, when nothing is shared."""

from yaie.course.lessons import trie as reference

EXPECT = "With no token in common"


class TokenTrie(reference.TokenTrie):
    def find_shared_prefixes(self, token_ids):
        node, length = self.root, 0
        for token in token_ids:
            if token not in node.children:
                break
            node, length = node.children[token], length + 1
        return sorted(node.request_ids, key=str), length
