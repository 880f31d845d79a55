"""Copies every shared block of the table, not only the one it writes."""

from yaie.engine import kv_cache as reference

EXPECT = "never written again, so it stays shared"


class KVCacheManager(reference.KVCacheManager):
    def append_tokens(self, request_id, num_tokens=1):
        if num_tokens < 0:
            raise ValueError(f"num_tokens must not be negative, got {num_tokens}")
        table, length = self._table(request_id), self.lengths[request_id]
        missing = reference.blocks_needed(length + num_tokens, self.block_size) - len(table)
        shared = [i for i, block in enumerate(table) if self.pool.ref_count(block) > 1]
        new_blocks = self.pool.allocate(missing + len(shared))
        for i in shared:
            old, table[i] = table[i], new_blocks.pop()
            self._copy_block(old, table[i])
            self.pool.release([old])
        table.extend(new_blocks)
        self.lengths[request_id] = length + num_tokens
        return self.slot_mapping(request_id, length, length + num_tokens)
