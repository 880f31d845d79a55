"""Exercise 02.2: Match a prompt, even into the middle of an edge.

Walk down the tree as far as a prompt agrees with it, in whole blocks. Where the two part inside
an edge, split the edge and go on with the upper half. Collect values and stamp `last_access` on
the way.

You have
- `self.block_size`: tokens per block
- `as_key(token_ids)`: the tokens as a key, which is what the nodes have
- `self._root_of(namespace)`: the node to begin at; a namespace keeps prompts apart that must not
  share (notebook 04), here it is `""`
- `self._tick()`: the time of this call; it grows with each call
- `self._shared_tokens(key, tokens, start)`: how many tokens, in whole blocks, `key` shares with
  `tokens[start:]`
- `self.split(child, num_tokens)`: cuts the edge into `child` after its first tokens, and returns
  the upper half
- `node.children`: a dict from the first block of a child's key to the child
- `node.key`, `node.values`, `node.last_access`: a string; a list with a value for each block of
  the key; a time
- `Match(node)`: what to return. It has `node`, `length` (0 so far) and `runs`, a list to which
  you append each node's list of `values`

In a terminal: yaie check 02.2, yaie hint 02.2, yaie reset 02.2.
What this file does not define is inherited from yaie/engine/radix.py.
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
        raise NotImplementedError("Exercise 02.2: Match a prompt, even into the middle of an edge")
