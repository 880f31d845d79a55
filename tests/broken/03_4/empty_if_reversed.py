"""Takes a reversed range for an empty one."""

from yaie.engine import kv_cache as reference

EXPECT = "`start` must not be behind `end`"


class KVCacheManager(reference.KVCacheManager):
    def slot_mapping(self, request_id, start, end):
        table, size = self._table(request_id), self.block_size
        if start < 0 or end > self.lengths[request_id]:
            raise ValueError(f"start, end: {start} to {end}")
        return [table[i // size] * size + i % size for i in range(start, end)]
