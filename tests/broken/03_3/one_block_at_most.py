"""Takes one block, however many tokens come."""

from yaie.engine import kv_cache as reference

EXPECT = "count what all of them need"


class KVCacheManager(reference.KVCacheManager):
    def append_tokens(self, request_id, num_tokens=1):
        if num_tokens < 0:
            raise ValueError(f"num_tokens must not be negative, got {num_tokens}")
        table, length = self._table(request_id), self.lengths[request_id]
        is_full = length % self.block_size == 0
        copy_tail = num_tokens > 0 and not is_full and self.pool.ref_count(table[-1]) > 1
        grows = length + num_tokens > len(table) * self.block_size
        new_blocks = self.pool.allocate(grows + copy_tail)
        if copy_tail:
            shared, table[-1] = table[-1], new_blocks.pop()
            self._copy_block(shared, table[-1])
            self.pool.release([shared])
        table.extend(new_blocks)
        self.lengths[request_id] = length + num_tokens
        every = [b * self.block_size + i for b in table for i in range(self.block_size)]
        return every[length : length + num_tokens]
