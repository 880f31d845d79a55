"""Checks the end of the range, and lets a negative start through."""

from yaie.engine import kv_cache as reference

EXPECT = "A negative index counts from the end"


class KVCacheManager(reference.KVCacheManager):
    def slot_mapping(self, request_id, start, end):
        table, size = self._table(request_id), self.block_size
        if not start <= end <= self.lengths[request_id]:
            raise ValueError(f"start, end: {start} to {end}")
        return [table[i // size] * size + i % size for i in range(start, end)]
