"""Exercise 03.1: Give a new request its block table.

A request arrives with a number of tokens. Give it as many blocks as they need, record its table
in `block_tables` and its number of tokens in `lengths`. It may begin with blocks that other
requests already filled (`prefix_blocks`): these are shared. Whatever goes wrong, nothing may have
changed.

You have
- `self.block_tables`, `self.lengths`: dicts from a request's id to its list of blocks, and to its
  number of tokens
- `self.block_size`: tokens per block
- `blocks_needed(num_tokens, block_size)`: returns an int, rounded up
- `self.pool.share(blocks)`: one user more for each block; ValueError if one of them is free, and
  then no count changes
- `self.pool.allocate(num_blocks)`: returns a list of blocks with one user each; OutOfBlocks if
  too few are free, and then takes none
- `self.pool.release(blocks)`: one user less for each block

In a terminal: yaie check 03.1, yaie hint 03.1, yaie reset 03.1.
What this file does not define is inherited from yaie/engine/kv_cache.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from yaie.engine import kv_cache as reference
from yaie.engine.kv_cache import OutOfBlocks, blocks_needed


class KVCacheManager(reference.KVCacheManager):
    def allocate_blocks(
        self, request_id: Hashable, num_tokens: int, prefix_blocks: Sequence[int] = ()
    ) -> list[int]:
        """Give a new request a block table for its first `num_tokens` tokens.

        Args:
            request_id: must not have a table yet.
            num_tokens: tokens of the request, those in `prefix_blocks` included.
            prefix_blocks: full blocks, in use already, that hold the request's first tokens.
                They are shared, and only the rest is allocated.

        Returns:
            A copy of the block table.

        Raises:
            ValueError: `request_id` has a table already, `prefix_blocks` hold more than
                `num_tokens` tokens, or one of them is free.
            OutOfBlocks: too few blocks are free.
            In every case nothing is allocated, shared or recorded.
        """
        raise NotImplementedError("Exercise 03.1: Give a new request its block table")
