"""Frees the blocks of a request that asks again, though somebody reads them."""

from yaie.engine import kv_cache as reference

EXPECT = "has blocks [0, 1] already, should raise ValueError"


class KVCacheManager(reference.KVCacheManager):
    def allocate_blocks(self, request_id, num_tokens, prefix_blocks=()):
        if request_id in self.block_tables:
            self.free_blocks(request_id)
        if num_tokens < len(prefix_blocks) * self.block_size:
            raise ValueError(f"num_tokens is too small for the prefix, got {num_tokens}")
        missing = reference.blocks_needed(num_tokens, self.block_size) - len(prefix_blocks)
        self.pool.share(prefix_blocks)
        try:
            new_blocks = self.pool.allocate(missing)
        except reference.OutOfBlocks:
            self.pool.release(prefix_blocks)
            raise
        self.block_tables[request_id] = [*prefix_blocks, *new_blocks]
        self.lengths[request_id] = num_tokens
        return list(self.block_tables[request_id])
