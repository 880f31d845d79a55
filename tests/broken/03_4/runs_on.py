"""Goes on behind the end of a block as if the next one lay there."""

from yaie.engine import kv_cache as reference

EXPECT = "lies somewhere else"


class KVCacheManager(reference.KVCacheManager):
    def slot_mapping(self, request_id, start, end):
        table, size = self._table(request_id), self.block_size
        if not 0 <= start <= end <= self.lengths[request_id]:
            raise ValueError(f"start, end: {start} to {end}")
        if start == end:
            return []
        first = table[start // size] * size + start % size
        return list(range(first, first + end - start))
