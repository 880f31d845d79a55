"""Returns every slot of the blocks that the range touches."""

from yaie.engine import kv_cache as reference

EXPECT = "all slots of the blocks"


class KVCacheManager(reference.KVCacheManager):
    def slot_mapping(self, request_id, start, end):
        table, size = self._table(request_id), self.block_size
        if not 0 <= start <= end <= self.lengths[request_id]:
            raise ValueError(f"start, end: {start} to {end}")
        spanned = table[start // size : -(-end // size)]
        return [block * size + i for block in spanned for i in range(size)]
