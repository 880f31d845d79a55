"""Exercise 02.1: Find the requests with this prefix, in a trie.

A trie holds the prompts of several requests, one node per token. Walk down as far as a new prompt
agrees with it. Return the ids of the requests that share this prefix, and its length in tokens.

You have
- `self.root`: the node of no tokens
- `node.children`: a dict from a token, an int, to the node of one token more
- `node.request_ids`: a set of the ids of all requests that begin with the tokens down to this
  node
- `token_ids`: the prompt, a sequence of ints; it may have thousands of tokens, more than Python's
  recursion limit

In a terminal: yaie check 02.1, yaie hint 02.1, yaie reset 02.1.
What this file does not define is inherited from yaie/course/lessons/trie.py.
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
        raise NotImplementedError("Exercise 02.1: Find the requests with this prefix, in a trie")
