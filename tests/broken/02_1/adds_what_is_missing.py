"""Makes the missing nodes while it looks."""

from yaie.course.lessons import trie as reference

EXPECT = "A lookup only reads"


class TokenTrie(reference.TokenTrie):
    def find_shared_prefixes(self, token_ids):
        node, length = self.root, 0
        for token in token_ids:
            if token not in node.children:
                self.insert_request("lookup", token_ids)
                node.children[token].request_ids.discard("lookup")
                break
            node, length = node.children[token], length + 1
        return (sorted(node.request_ids - {"lookup"}, key=str), length) if length else ([], 0)
