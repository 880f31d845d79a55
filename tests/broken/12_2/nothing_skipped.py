"""Tiles that no query sees are computed and masked away."""

import triton
import triton.language as tl

EXPECT = "would be computed, and masked away"


@triton.jit
def seen_keys(
    first_row,
    num_queries,
    num_keys,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    rows = first_row + tl.arange(0, BLOCK_M)
    past = num_keys - num_queries
    if CAUSAL:
        last_key = rows + past
        seen_by_all = first_row + past + 1
        end = num_keys
    else:
        last_key = tl.zeros((BLOCK_M,), tl.int32) + num_keys - 1
        seen_by_all = num_keys
        end = num_keys
    return last_key, tl.maximum(seen_by_all, 0) // BLOCK_N * BLOCK_N, end
