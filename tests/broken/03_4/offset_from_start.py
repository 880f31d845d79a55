"""Counts the offset from `start`."""

from yaie.engine import kv_cache as reference

EXPECT = "The offset counts from the block's beginning"


class KVCacheManager(reference.KVCacheManager):
    def slot_mapping(self, request_id, start, end):
        table, size = self._table(request_id), self.block_size
        if not 0 <= start <= end <= self.lengths[request_id]:
            raise ValueError(f"start, end: {start} to {end}")
        return [table[i // size] * size + (i - start) % size for i in range(start, end)]
