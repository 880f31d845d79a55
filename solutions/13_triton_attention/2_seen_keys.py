"""Solution of exercise 13.2: Two loops: what a tile of queries sees.

The flash kernel goes through the keys in two loops: first the tiles that every query of its tile
sees whole, without a mask; then those that need one. Compute, for a tile of queries, where the
first loop ends, where the second ends, and the last key of each query, which is what the mask
compares with. `if CAUSAL:` is decided when the kernel is compiled.

Generated from seen_keys in yaie/ops/triton/flash.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def seen_keys(
    first_row,
    num_queries,
    num_keys,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Say which keys the queries first_row to first_row + BLOCK_M - 1 of a sequence see.

    The queries are the last of the sequence's num_keys tokens: query `num_queries - 1` is at
    position `num_keys - 1`. With CAUSAL a query sees the keys up to its own position, without it
    all of them. A tile may have rows beyond the last query, whose results are not stored.

    Returns:
        `last_key`, [BLOCK_M], the last key that each query sees, negative if it sees none;
        `unmasked`, how many keys lie in whole tiles of BLOCK_N that every query of the tile sees,
        a multiple of BLOCK_N, never negative;
        `end`, one more than the last key that any query of the tile sees, at most num_keys, 0 or
        less if none sees any.
    """
    rows = first_row + tl.arange(0, BLOCK_M)
    past = num_keys - num_queries
    if CAUSAL:
        last_key = rows + past
        seen_by_all = first_row + past + 1
        end = tl.minimum(num_keys, first_row + BLOCK_M + past)
    else:
        last_key = tl.zeros((BLOCK_M,), tl.int32) + num_keys - 1
        seen_by_all = num_keys
        end = num_keys
    return last_key, tl.maximum(seen_by_all, 0) // BLOCK_N * BLOCK_N, end
