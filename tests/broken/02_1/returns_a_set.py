"""Returns the node's own set of ids."""

from yaie.course.lessons import trie as reference

EXPECT = "The ids are wanted as a sorted list"


class TokenTrie(reference.TokenTrie):
    def find_shared_prefixes(self, token_ids):
        node, length = self.root, 0
        for token in token_ids:
            if token not in node.children:
                break
            node, length = node.children[token], length + 1
        return (node.request_ids, length) if length else ([], 0)
