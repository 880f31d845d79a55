"""Names every request that was met on the way, also those that left it."""

from yaie.course.lessons import trie as reference

EXPECT = "These are the requests that share the first token"


class TokenTrie(reference.TokenTrie):
    def find_shared_prefixes(self, token_ids):
        node, length, ids = self.root, 0, set()
        for token in token_ids:
            if token not in node.children:
                break
            node, length = node.children[token], length + 1
            ids |= node.request_ids
        return sorted(ids, key=str), length
