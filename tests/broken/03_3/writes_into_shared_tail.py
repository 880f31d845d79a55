"""Writes into a half-filled block that a fork uses as well."""

from yaie.engine import kv_cache as reference

EXPECT = "Take a copy first"


class KVCacheManager(reference.KVCacheManager):
    def append_tokens(self, request_id, num_tokens=1):
        if num_tokens < 0:
            raise ValueError(f"num_tokens must not be negative, got {num_tokens}")
        table, length = self._table(request_id), self.lengths[request_id]
        missing = reference.blocks_needed(length + num_tokens, self.block_size) - len(table)
        new_blocks = self.pool.allocate(missing)
        table.extend(new_blocks)
        self.lengths[request_id] = length + num_tokens
        return self.slot_mapping(request_id, length, length + num_tokens)
