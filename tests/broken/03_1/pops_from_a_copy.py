"""Takes blocks from the manager's `free_block_list`, which is a copy, so the same one again."""

from yaie.engine import kv_cache as reference

EXPECT = "`self.free_block_list` is a copy"


class KVCacheManager(reference.KVCacheManager):
    def allocate_blocks(self, request_id, num_tokens, prefix_blocks=()):
        missing = reference.blocks_needed(num_tokens, self.block_size) - len(prefix_blocks)
        new_blocks = [self.free_block_list.pop(0) for _ in range(missing)]
        self.block_tables[request_id] = [*prefix_blocks, *new_blocks]
        self.lengths[request_id] = num_tokens
        return list(self.block_tables[request_id])
