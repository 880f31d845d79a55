"""A tree with a node for every token: the simplest thing that finds shared prefixes (notebook 02).

`yaie.engine.radix` joins every chain of single children into one node.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from yaie.engine.radix_node import describe


class TrieNode:
    """The end of one prefix. `request_ids` are the requests that begin with that prefix."""

    def __init__(self) -> None:
        self.children: dict[int, TrieNode] = {}
        self.request_ids: set[Hashable] = set()


class TokenTrie:
    """A tree with one node for each token of each distinct prefix."""

    def __init__(self) -> None:
        self.root = TrieNode()
        self.num_nodes = 1

    def insert_request(self, request_id: Hashable, token_ids: Sequence[int]) -> None:
        """Add a request: walk down token by token, and make the nodes that are missing."""
        node = self.root
        node.request_ids.add(request_id)
        for token in token_ids:
            if token not in node.children:
                node.children[token] = TrieNode()
                self.num_nodes += 1
            node = node.children[token]
            node.request_ids.add(request_id)

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

    def get_shared_computation_graph(self) -> dict[str, Any]:
        """Describe the tree as nested dicts with `tokens`, `request_count` and `children`."""
        return _describe_trie(self.root, ())


def _describe_trie(root: TrieNode, tokens: tuple[int, ...]) -> dict[str, Any]:
    graph = describe(tokens, root.request_ids)
    stack = [(root, graph)]
    while stack:  # a loop, because a prompt may be longer than Python's recursion limit
        node, described = stack.pop()
        for token, child in node.children.items():
            described["children"].append(describe((token,), child.request_ids))
            stack.append((child, described["children"][-1]))
    return graph
