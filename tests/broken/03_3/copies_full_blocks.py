"""Copies a shared last block although it is full."""

from yaie.engine import kv_cache as reference

EXPECT = "the new token lies in a new block, so nothing is copied"


class KVCacheManager(reference.KVCacheManager):
    def append_tokens(self, request_id, num_tokens=1):
        if num_tokens < 0:
            raise ValueError(f"num_tokens must not be negative, got {num_tokens}")
        table, length = self._table(request_id), self.lengths[request_id]
        writes_into_tail = num_tokens > 0 and length > 0
        copy_tail = writes_into_tail and self.pool.ref_count(table[-1]) > 1
        missing = reference.blocks_needed(length + num_tokens, self.block_size) - len(table)
        new_blocks = self.pool.allocate(missing + copy_tail)
        if copy_tail:
            shared, table[-1] = table[-1], new_blocks.pop()
            self._copy_block(shared, table[-1])
            self.pool.release([shared])
        table.extend(new_blocks)
        self.lengths[request_id] = length + num_tokens
        return self.slot_mapping(request_id, length, length + num_tokens)
