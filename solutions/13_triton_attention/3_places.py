"""Solution of exercise 13.3: Rows of a tile, slots of the cache.

The paged kernel serves all query heads of a KV head with one tile. `find_queries` says which
query and which head each row of it is. `find_slots` looks up in the block table where keys lie,
and must not load an entry that no wanted key needs.

Generated from find_queries, find_slots in yaie/ops/triton/paged.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def find_queries(rows, kv_head, group):
    """The query and the query head of each row of a KV head's tile.

    The `group` query heads that read one KV head are neighbors, query head h reads KV head
    h // group, and the rows take all of them for query 0, then all for query 1, and so on.

    Args:
        rows: block of row numbers, from 0.
        kv_head, group: numbers.

    Returns:
        Two blocks of the shape of `rows`: the queries, and the heads, counted from the first query
        head of all.
    """
    return rows // group, kv_head * group + rows % group


@triton.jit
def find_slots(table, keys, end, BLOCK_SIZE: tl.constexpr):
    """Look up where keys lie: the slot of each, block × BLOCK_SIZE + offset.

    Args:
        table: pointer to the sequence's row of the block tables, int32. Key j is in the block
            that entry j // BLOCK_SIZE names. Entries beyond the context may hold anything.
        keys: block of key numbers.
        end: keys from here on are not wanted, and entries that only they need are not loaded.

    Returns:
        int64, of the shape of `keys`, since a pool may have more than 2³¹ elements. For a key that
        is not wanted it may be any number.
    """
    block = tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0)
    return block.to(tl.int64) * BLOCK_SIZE + keys % BLOCK_SIZE
