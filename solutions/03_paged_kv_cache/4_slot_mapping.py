"""Solution of exercise 03.4: Translate tokens into slots.

A kernel that writes keys and values knows nothing about requests: it needs one number for each
token, its slot in the pool seen as one long row. Translate the tokens `start` to `end` of a
request into slots, through its block table. Refuse tokens that the request does not have.

Generated from KVCacheManager.slot_mapping in yaie/engine/kv_cache.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from collections.abc import Hashable

from yaie.engine import kv_cache as reference


class KVCacheManager(reference.KVCacheManager):
    def slot_mapping(self, request_id: Hashable, start: int, end: int) -> list[int]:
        """The slots of the request's tokens `start` to `end` (exclusive): `[]` if they are equal.

        Raises:
            KeyError: `request_id` has no block table.
            ValueError: `start` to `end` is not a range within the request's tokens. A last block
                that is partly filled has slots beyond them, which hold nothing of the request.
        """
        table = self._table(request_id)
        if not 0 <= start <= end <= self.lengths[request_id]:
            raise ValueError(
                f"start, end: tokens {start} to {end} are not within the "
                f"{self.lengths[request_id]} tokens of request {request_id!r}"
            )
        size = self.block_size
        return [table[i // size] * size + i % size for i in range(start, end)]
