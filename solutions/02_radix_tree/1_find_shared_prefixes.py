"""Solution of exercise 02.1: Find the requests with this prefix, in a trie.

A trie holds the prompts of several requests, one node per token. Walk down as far as a new prompt
agrees with it. Return the ids of the requests that share this prefix, and its length in tokens.

Generated from TokenTrie.find_shared_prefixes in yaie/course/lessons/trie.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from yaie.course.lessons import trie as reference


class TokenTrie(reference.TokenTrie):
    def find_shared_prefixes(self, token_ids: Sequence[int]) -> tuple[list[Hashable], int]:
        """Find the longest prefix of `token_ids` that some request begins with.

        Returns:
            The ids of all requests that begin with it, sorted by their text, and its length in
            tokens. With nothing in common: `([], 0)`.
        """
        node, length = self.root, 0
        for token in token_ids:
            if token not in node.children:
                break
            node = node.children[token]
            length += 1
        if length == 0:
            return [], 0
        return sorted(node.request_ids, key=str), length
