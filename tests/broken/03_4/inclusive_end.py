"""Includes the token at `end`."""

from yaie.engine import kv_cache as reference

EXPECT = "`end` is exclusive"


class KVCacheManager(reference.KVCacheManager):
    def slot_mapping(self, request_id, start, end):
        table, size = self._table(request_id), self.block_size
        if not 0 <= start <= end <= self.lengths[request_id]:
            raise ValueError(f"start, end: {start} to {end}")
        last = min(end, self.lengths[request_id] - 1)
        return [table[i // size] * size + i % size for i in range(start, last + 1)]
