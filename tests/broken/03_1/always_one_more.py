"""Adds a block even if the tokens fill theirs exactly."""

from yaie.engine import kv_cache as reference

EXPECT = "one too many where the tokens fill their last block"


class KVCacheManager(reference.KVCacheManager):
    def allocate_blocks(self, request_id, num_tokens, prefix_blocks=()):
        if request_id in self.block_tables:
            raise ValueError(f"request_id {request_id!r} already has a table")
        if num_tokens < len(prefix_blocks) * self.block_size:
            raise ValueError(f"num_tokens is too small for the prefix, got {num_tokens}")
        missing = num_tokens // self.block_size + 1 - len(prefix_blocks)
        self.pool.share(prefix_blocks)
        try:
            new_blocks = self.pool.allocate(missing)
        except reference.OutOfBlocks:
            self.pool.release(prefix_blocks)
            raise
        self.block_tables[request_id] = [*prefix_blocks, *new_blocks]
        self.lengths[request_id] = num_tokens
        return list(self.block_tables[request_id])
