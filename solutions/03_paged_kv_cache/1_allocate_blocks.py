"""Solution of exercise 03.1: Give a new request its block table.

A request arrives with a number of tokens. Give it as many blocks as they need, record its table
in `block_tables` and its number of tokens in `lengths`. It may begin with blocks that other
requests already filled (`prefix_blocks`): these are shared. Whatever goes wrong, nothing may have
changed.

Generated from KVCacheManager.allocate_blocks in yaie/engine/kv_cache.py.
Edit it there, and run `python -m yaie.course build`.
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
        if request_id in self.block_tables:
            raise ValueError(
                f"request_id {request_id!r} already has {len(self.block_tables[request_id])} "
                "blocks; free them first, or call append_tokens to grow"
            )
        if num_tokens < len(prefix_blocks) * self.block_size:
            raise ValueError(
                f"num_tokens must be at least the {len(prefix_blocks) * self.block_size} tokens "
                f"that prefix_blocks hold, got {num_tokens}"
            )
        missing = blocks_needed(num_tokens, self.block_size) - len(prefix_blocks)
        self.pool.share(prefix_blocks)  # fails if one is free, before a new block could be it
        try:
            new_blocks = self.pool.allocate(missing)
        except OutOfBlocks:
            self.pool.release(prefix_blocks)
            raise
        self.block_tables[request_id] = [*prefix_blocks, *new_blocks]
        self.lengths[request_id] = num_tokens
        return list(self.block_tables[request_id])
