"""Exercise 03.4: Translate tokens into slots.

A kernel that writes keys and values knows nothing about requests: it needs one number for each
token, its slot in the pool seen as one long row. Translate the tokens `start` to `end` of a
request into slots, through its block table. Refuse tokens that the request does not have.

You have
- `self._table(request_id)`: the request's block table, a list of ints; KeyError if there is none
- `self.lengths[request_id]`: its number of tokens
- `self.block_size`: tokens per block
- `start`, `end`: ints; `end` is exclusive

In a terminal: yaie check 03.4, yaie hint 03.4, yaie reset 03.4.
What this file does not define is inherited from yaie/engine/kv_cache.py.
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
        raise NotImplementedError("Exercise 03.4: Translate tokens into slots")
