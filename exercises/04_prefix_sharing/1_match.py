"""Exercise 04.1: Find the blocks that hold a prompt's beginning.

A request arrives. Ask the tree, `self.tree`, for the blocks that hold the beginning of its
tokens, but leave at least one token to compute: without a forward pass there are no logits, and
without logits no next token.

You have
- `self.tree.match(token_ids, namespace)`: returns a `Match` (exercise 02.2): node, length in
  tokens, values, which are blocks here
- `self.block_size`: tokens per block
- `token_ids`: a list of ints or a string with a character per token; either can be sliced, and
  may be empty

In a terminal: yaie check 04.1, yaie hint 04.1, yaie reset 04.1.
What this file does not define is inherited from yaie/engine/prefix_cache.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from yaie.engine import prefix_cache as reference
from yaie.engine.radix import Match


class RadixCache(reference.RadixCache):
    def match(self, token_ids: Sequence[int], namespace: str = "") -> Match:
        """Find the blocks that already hold the beginning of `token_ids`.

        Whole blocks only, and at least one token is left over: its forward pass gives the logits
        of the next token, and no cache holds those. So of 32 cached tokens in blocks of 16, the
        same 32 match only 16. What was computed in another namespace is never found.

        What is found counts as used now. The caller gets neither a reference nor a lock: until it
        locks the node, the blocks may be evicted.

        Returns:
            The node, the length in tokens, and as values the blocks. The node ends there exactly.
        """
        raise NotImplementedError("Exercise 04.1: Find the blocks that hold a prompt's beginning")
