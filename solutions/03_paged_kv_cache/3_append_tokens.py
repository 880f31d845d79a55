"""Solution of exercise 03.3: Grow a request, copy-on-write.

A request is about to compute more tokens. Make room for their keys and values and return their
slots. Take new blocks where the last one is full. If the new tokens go into a last block that a
fork uses as well, copy that block first, and write into the copy.

Generated from KVCacheManager.append_tokens in yaie/engine/kv_cache.py.
Edit it there, and run `python -m yaie.course build`.
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
        if num_tokens < 0:
            raise ValueError(f"num_tokens must not be negative, got {num_tokens}")
        table, length = self._table(request_id), self.lengths[request_id]
        writes_into_tail = num_tokens > 0 and length % self.block_size != 0
        copy_tail = writes_into_tail and self.pool.ref_count(table[-1]) > 1
        missing = blocks_needed(length + num_tokens, self.block_size) - len(table)
        new_blocks = self.pool.allocate(missing + copy_tail)
        if copy_tail:
            shared, table[-1] = table[-1], new_blocks.pop()
            self._copy_block(shared, table[-1])
            self.pool.release([shared])
        table.extend(new_blocks)
        self.lengths[request_id] = length + num_tokens
        return self.slot_mapping(request_id, length, length + num_tokens)
