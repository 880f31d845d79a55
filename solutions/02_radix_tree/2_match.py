"""Solution of exercise 02.2: Match a prompt, even into the middle of an edge.

Walk down the tree as far as a prompt agrees with it, in whole blocks. Where the two part inside
an edge, split the edge and go on with the upper half. Collect values and stamp `last_access` on
the way.

Generated from RadixTree.match in yaie/engine/radix.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from collections.abc import Sequence

from yaie.engine import radix as reference
from yaie.engine.radix_node import Match, as_key


class RadixTree(reference.RadixTree):
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
