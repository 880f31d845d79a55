"""Exercise 03.3: Grow a request, copy-on-write.

A request is about to compute more tokens. Make room for their keys and values and return their
slots. Take new blocks where the last one is full. If the new tokens go into a last block that a
fork uses as well, copy that block first, and write into the copy.

You have
- `self._table(request_id)`: the request's block table, the list itself; KeyError if there is none
- `self.lengths[request_id]`: its number of tokens
- `self.block_size`: tokens per block
- `blocks_needed(num_tokens, block_size)`: returns an int, rounded up
- `self.pool.ref_count(block)`: returns how many users a block has
- `self.pool.allocate(num_blocks)`, `self.pool.release(blocks)`: as in exercise 03.1; OutOfBlocks
  changes nothing
- `self._copy_block(source, target)`: copies keys and values of a block, in all layers
- `self.slot_mapping(request_id, start, end)`: returns the list of slots of these tokens (exercise
  03.4)

In a terminal: yaie check 03.3, yaie hint 03.3, yaie reset 03.3.
What this file does not define is inherited from yaie/engine/kv_cache.py.
"""

from __future__ import annotations

from collections.abc import Hashable

from yaie.engine import kv_cache as reference
from yaie.engine.kv_cache import blocks_needed


class KVCacheManager(reference.KVCacheManager):
    def append_tokens(self, request_id: Hashable, num_tokens: int = 1) -> list[int]:
        """Make room for `num_tokens` more tokens, and return the slots to write them to.

        New blocks are taken when the last one is full. If the last one is partly filled and
        shared with a fork, the request first gets a copy of its own, keys and values of every
        layer (copy-on-write). With `num_tokens` 0 nothing changes.

        Raises:
            KeyError: `request_id` has no block table.
            ValueError: `num_tokens` is negative.
            OutOfBlocks: too few blocks are free. The request and the pool are as they were.
        """
        raise NotImplementedError("Exercise 03.3: Grow a request, copy-on-write")
