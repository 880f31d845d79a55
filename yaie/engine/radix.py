"""A tree of token sequences: which requests begin alike, and what is known about them.

`RadixTree` joins every chain of single children into one node, and has what a cache needs: a value
for every block of tokens, locks, and eviction of what was used longest ago.

Nothing here knows what the values are. `yaie.engine.prefix_cache` makes them KV blocks.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from yaie.engine.radix_node import Match, RadixNode, as_key, as_token_ids, describe

FEW = 16  # tokens that are compared one by one, where an edge and a sequence part


def shared_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Count the leading tokens that two sequences have in common.

    >>> shared_prefix_length([5, 8, 13], [5, 8, 21, 34])
    2
    """
    length = 0
    for token_a, token_b in zip(a, b, strict=False):
        if token_a != token_b:
            break
        length += 1
    return length


class RadixTree:
    """A compressed tree of token sequences, in whole blocks of `block_size` tokens.

    Edges are compared and split at multiples of `block_size` only, since a block is the unit in
    which values are kept. Sequences of different namespaces (adapters, tenants) never meet. Tokens
    come as ids or, without a conversion, as what `as_key` makes of them.

    The idea of a radix tree as a prefix cache: Zheng et al., "SGLang: Efficient Execution of
    Structured Language Model Programs", 2024.
    """

    def __init__(self, block_size: int = 1) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        self.block_size = block_size
        self.root = RadixNode("", [], None)
        self.roots: dict[str, RadixNode] = {"": self.root}
        self.num_nodes = 1
        self.num_values = 0
        self.num_evictable = 0  # values outside every lock
        self._clock = 0
        # Leaves that eviction may take, oldest first. Entries may be out of date; see
        # `_oldest_leaf`. The second field breaks ties, so that nodes are never compared.
        self._heap: list[tuple[int, int, RadixNode]] = []
        self._pushes = 0

    # ------------------------------------------------------------------------ match and insert

    def match(self, token_ids: Sequence[int], namespace: str = "") -> Match:
        """Find the longest prefix of `token_ids`, in whole blocks, that the tree holds.

        If the prefix ends inside an edge, the edge is split there, so that the returned node
        ends exactly where the match does and can be locked without locking more. All nodes on
        the way get the same new time as their `last_access`: a tick of the tree's clock.

        Returns:
            The node at which the prefix ends, its length in tokens, and the values of all of its
            blocks in order. With nothing in common: the namespace's root, 0 and no values.
        """
        tokens = as_key(token_ids)
        node = self._root_of(namespace)
        found = Match(node)
        now = self._tick()
        node.last_access = now
        while child := node.children.get(tokens[found.length : found.length + self.block_size]):
            shared = self._shared_tokens(child.key, tokens, found.length)
            if shared < len(child.key):
                child = self.split(child, shared)
            child.last_access = now
            found.length += shared
            found.runs.append(child.values)
            found.node = node = child
        return found

    def match_length(self, token_ids: Sequence[int], namespace: str = "") -> int:
        """Count the tokens that `match` would find, and change nothing: to look is not to use."""
        return max((length for _, length in self._path(token_ids, namespace)), default=0)

    def insert(
        self, token_ids: Sequence[int], values: Sequence[Any] | None = None, namespace: str = ""
    ) -> tuple[RadixNode, int]:
        """Add a sequence, with one value for each of its blocks.

        Only whole blocks are kept: a tail shorter than `block_size` is left out. What the tree
        already holds keeps its old values, and only the rest is taken from `values`. If all of a
        list is new, the tree keeps the list itself, not a copy: do not change it afterwards.

        Returns:
            The node at which the sequence ends, and how many tokens were there before.
        """
        num_blocks = len(token_ids) // self.block_size
        tokens = as_key(token_ids[: num_blocks * self.block_size])
        if not isinstance(values, list):
            values = [None] * num_blocks if values is None else list(values)
        if len(values) < num_blocks:
            raise ValueError(
                f"values must have one entry for each of the {num_blocks} whole blocks of "
                f"token_ids, got {len(values)}"
            )
        found = self.match(tokens, namespace)
        if found.length == len(tokens):
            return found.node, found.length
        if namespace not in self.roots:
            self.roots[namespace] = found.node
            self.num_nodes += 1
        new_values = values
        if found.length or len(values) > num_blocks:
            new_values = values[found.length // self.block_size : num_blocks]
        leaf = RadixNode(tokens[found.length :], new_values, found.node)
        leaf.last_access = self._clock
        found.node.children[leaf.key[: self.block_size]] = leaf
        self.num_nodes += 1
        self.num_values += len(new_values)
        self.num_evictable += len(new_values)
        self._offer(leaf)
        return leaf, found.length

    def extend(self, leaf: RadixNode, token_ids: Sequence[int], values: Sequence[Any]) -> bool:
        """Lengthen the edge into a leaf, if a single lock holds it: that of the caller.

        A request that generates makes its own leaf longer this way, block by block, and no chain
        of nodes with a block each below it. It counts as a use of the whole path.

        Args:
            leaf: what the caller has locked.
            token_ids: those that follow the leaf's, in whole blocks.
            values: one for each of the blocks.

        Returns:
            Whether it was done. If not, the node is a root, has children, or others need it to
            end where it does; then nothing has changed, and `insert` does it.
        """
        tokens = as_key(token_ids)
        if len(tokens) != len(values) * self.block_size:
            raise ValueError(
                f"values must have one entry for each block of {self.block_size} token_ids, "
                f"got {len(values)} for {len(tokens)} tokens"
            )
        if leaf.parent is None or leaf.children or leaf.request_ids or leaf.lock_count != 1:
            return False
        leaf.key += tokens
        leaf.values = [*leaf.values, *values]  # a new list: a Match may have the old one
        self.num_values += len(values)
        now = self._tick()
        while leaf is not None:
            leaf.last_access = now
            leaf = leaf.parent
        return True

    def split(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Cut the edge into `node` after `num_tokens` tokens.

        A new upper node takes the first part of the key and of the values, and `node`'s place
        under its parent. `node` keeps the rest, and its children, and hangs below the new one: it
        ends where it did, so a caller that holds it still has the same prefix. Both halves have
        its locks, request ids and time of last access. `num_nodes` grows by one.

        Returns:
            The new upper node.

        Raises:
            ValueError: `num_tokens` is not a multiple of `block_size`, or leaves a half empty.
        """
        if not 0 < num_tokens < len(node.key) or num_tokens % self.block_size:
            raise ValueError(
                f"num_tokens must be a multiple of {self.block_size} inside the node's "
                f"{len(node.key)} tokens, got {num_tokens}"
            )
        num_values = num_tokens // self.block_size
        upper = RadixNode(node.key[:num_tokens], node.values[:num_values], node.parent)
        upper.lock_count = node.lock_count
        upper.last_access = node.last_access
        upper.request_ids = set(node.request_ids)
        node.parent.children[upper.key[: self.block_size]] = upper
        node.key = node.key[num_tokens:]
        node.values = node.values[num_values:]
        node.parent = upper
        upper.children[node.key[: self.block_size]] = node
        self.num_nodes += 1
        return upper

    def _path(
        self, token_ids: Sequence[int], namespace: str = ""
    ) -> Iterator[tuple[RadixNode, int]]:
        """The nodes on a sequence's way down, each with how many tokens agree as far as its end.

        In the last one, the sequence may end or part from the key.
        """
        tokens = as_key(token_ids)
        node, length = self._root_of(namespace), 0
        while child := node.children.get(tokens[length : length + self.block_size]):
            shared = self._shared_tokens(child.key, tokens, length)
            node, length = child, length + shared
            yield node, length
            if shared < len(node.key):
                break

    def _shared_tokens(self, key: str, tokens: str, start: int) -> int:
        """Count the tokens, in whole blocks, that `key` shares with `tokens[start:]`.

        A comparison of memory says only whether two pieces are equal. So pieces of the key are
        compared that double in length, until one differs; then halves of that one.
        """
        if tokens.startswith(key, start):  # mostly so
            return len(key)
        length, size = 0, FEW
        while tokens.startswith(key[length : length + size], start + length):
            length += size
            size *= 2
        while size > FEW:
            size //= 2
            if tokens.startswith(key[length : length + size], start + length):
                length += size
        there = start + length
        length += shared_prefix_length(key[length : length + FEW], tokens[there : there + FEW])
        return length // self.block_size * self.block_size

    # ------------------------------------------------------------------------ locks, eviction

    def lock(self, node: RadixNode) -> None:
        """Protect `node` and everything above it from eviction, until `unlock`."""
        if node.parent is not None and not self._is_attached(node):
            raise ValueError(f"lock: {node} was evicted before it was locked")
        while node.parent is not None:
            if node.lock_count == 0:
                self.num_evictable -= len(node.values)
            node.lock_count += 1
            node = node.parent

    def unlock(self, node: RadixNode) -> None:
        """Take one lock back from `node` and everything above it."""
        while node.parent is not None:
            if node.lock_count == 0:
                raise ValueError(f"unlock: {node} is not locked")
            node.lock_count -= 1
            if node.lock_count == 0:
                self.num_evictable += len(node.values)
                self._offer(node)
            node = node.parent

    def evict(self, num_values: int) -> list[Any]:
        """Remove up to `num_values` values, from the unlocked leaves used longest ago.

        A leaf that holds more than is needed loses its tail only: its beginning is what other
        sequences are most likely to share. A node whose last child is gone is a leaf from then
        on. Leaves of all namespaces compete; a root is no leaf.

        Returns:
            The removed values, in any order: fewer than asked for if everything left is locked.
        """
        evicted: list[Any] = []
        while len(evicted) < num_values:
            leaf = self._oldest_leaf()
            if leaf is None:
                break
            keep = max(0, len(leaf.values) - (num_values - len(evicted)))
            evicted.extend(leaf.values[keep:])
            self._cut(leaf, keep)
        return evicted

    def prune(self, node: RadixNode) -> list[Any]:
        """Remove `node` and what is above it, up to where a lock or another branch needs it.

        Returns:
            The removed values.
        """
        removed: list[Any] = []
        while self._is_evictable(node):
            removed.extend(node.values)
            self._cut(node, keep=0)
            node = node.parent
        return removed

    def _cut(self, leaf: RadixNode, keep: int) -> None:
        """Shorten an unlocked leaf to its first `keep` values; remove it if none is left.

        The node that stays is a new one: a caller that holds `leaf` gets an error when locking it.
        """
        if keep:
            self.split(leaf, keep * self.block_size)
        del leaf.parent.children[leaf.key[: self.block_size]]
        self.num_nodes -= 1
        self.num_values -= len(leaf.values)
        self.num_evictable -= len(leaf.values)
        self._offer(leaf.parent)
        root = leaf.parent  # if it is one: there may be a namespace for every user
        if root.parent is None and not root.children and root is not self.root:
            del self.roots[root.namespace]
            self.num_nodes -= 1

    def _oldest_leaf(self) -> RadixNode | None:
        """Take the unlocked leaf with the smallest `last_access` out of the heap.

        An entry whose node has since been locked, extended or removed is dropped; one whose node
        has since been used is put back with the later time: O(log n) per call, amortized.
        """
        while self._heap:
            time, _, node = heapq.heappop(self._heap)
            node.in_heap = False
            if not self._is_evictable(node):
                continue
            if time == node.last_access:
                return node
            self._offer(node)
        return None

    def _offer(self, node: RadixNode) -> None:
        """Enter `node` in the heap if eviction could take it."""
        if self._is_evictable(node) and not node.in_heap:
            node.in_heap = True
            self._pushes += 1
            heapq.heappush(self._heap, (node.last_access, self._pushes, node))
        if len(self._heap) > 2 * self.num_nodes + 64:  # mostly entries of removed nodes
            self._heap = [entry for entry in self._heap if self._is_attached(entry[2])]
            heapq.heapify(self._heap)

    def _is_evictable(self, node: RadixNode) -> bool:
        is_leaf = node.parent is not None and not node.children
        return is_leaf and node.lock_count == 0 and self._is_attached(node)

    def _is_attached(self, node: RadixNode) -> bool:
        """Whether `node` is still in the tree; its parents are, if it is."""
        return node.parent.children.get(node.key[: self.block_size]) is node

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _root_of(self, namespace: str) -> RadixNode:
        """The namespace's root; a new one, which `insert` keeps, if it has no tokens."""
        return self.roots.get(namespace) or RadixNode("", [], None, namespace)

    # ------------------------------------------------------------------------ requests

    def insert_request(self, request_id: Hashable, token_ids: Sequence[int]) -> None:
        """Add a request's tokens, and its id to every node that they pass."""
        node, _ = self.insert(token_ids)
        while node is not None:
            node.request_ids.add(request_id)
            node = node.parent

    def find_shared_prefixes(self, token_ids: Sequence[int]) -> tuple[list[Hashable], int]:
        """Find the longest prefix of `token_ids` that some request begins with, and these requests.

        It changes nothing, and finds requests; an engine's lookup, such as `match` or SGLang's
        `match_prefix`, finds what is cached, marks it as used and may split an edge.

        Returns:
            The ids of all requests that begin with it, sorted by their text, and its length in
            tokens. With nothing in common: `([], 0)`.
        """
        request_ids, length = set(), 0
        for node, end in self._path(token_ids):
            if not node.request_ids:  # cached tokens of no request
                break
            request_ids, length = node.request_ids, end
        return sorted(request_ids, key=str), length

    def get_shared_computation_graph(self) -> dict[str, Any]:
        """Describe the tree as nested dicts with `tokens`, `request_count` and `children`."""
        graph = describe((), self.root.request_ids)
        stack = [(self.root, graph)]
        while stack:
            node, described = stack.pop()
            for child in node.children.values():
                described["children"].append(describe(as_token_ids(child.key), child.request_ids))
                stack.append((child, described["children"][-1]))
        return graph
