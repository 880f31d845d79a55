"""Compares blocks, not tokens, so that a full prefix may exceed the request."""

from yaie.engine import kv_cache as reference

EXPECT = "more than the request's 7"


class KVCacheManager(reference.KVCacheManager):
    def allocate_blocks(self, request_id, num_tokens, prefix_blocks=()):
        if request_id in self.block_tables:
            raise ValueError(f"request_id {request_id!r} already has a table")
        missing = reference.blocks_needed(num_tokens, self.block_size) - len(prefix_blocks)
        if missing < 0:
            raise ValueError("the prefix is too long")
        self.pool.share(prefix_blocks)
        try:
            new_blocks = self.pool.allocate(missing)
        except reference.OutOfBlocks:
            self.pool.release(prefix_blocks)
            raise
        self.block_tables[request_id] = [*prefix_blocks, *new_blocks]
        self.lengths[request_id] = num_tokens
        return list(self.block_tables[request_id])
