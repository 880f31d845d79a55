"""Records the request before it has its blocks, and leaves the entry behind."""

from yaie.engine import kv_cache as reference

EXPECT = "record a request once it has its blocks"


class KVCacheManager(reference.KVCacheManager):
    def allocate_blocks(self, request_id, num_tokens, prefix_blocks=()):
        if request_id in self.block_tables:
            raise ValueError(f"request_id {request_id!r} already has a table")
        if num_tokens < len(prefix_blocks) * self.block_size:
            raise ValueError(f"num_tokens is too small for the prefix, got {num_tokens}")
        missing = reference.blocks_needed(num_tokens, self.block_size) - len(prefix_blocks)
        table = self.block_tables[request_id] = list(prefix_blocks)
        self.lengths[request_id] = num_tokens
        table.extend(self.pool.allocate(missing))
        self.pool.share(prefix_blocks)
        return list(table)
