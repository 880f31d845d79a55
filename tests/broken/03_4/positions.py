"""Takes a token's position for its slot, as in a contiguous cache."""

from yaie.engine import kv_cache as reference

EXPECT = "look each one's block up"


class KVCacheManager(reference.KVCacheManager):
    def slot_mapping(self, request_id, start, end):
        self._table(request_id)
        if not 0 <= start <= end <= self.lengths[request_id]:
            raise ValueError(f"start, end: {start} to {end}")
        return list(range(start, end))
