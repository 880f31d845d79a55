"""The first loop goes as far as the last query sees."""

import triton
import triton.language as tl

EXPECT = "what the last query of the tile sees"


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
        seen_by_all = tl.minimum(num_keys, first_row + BLOCK_M + past)
        end = tl.minimum(num_keys, first_row + BLOCK_M + past)
    else:
        last_key = tl.zeros((BLOCK_M,), tl.int32) + num_keys - 1
        seen_by_all = num_keys
        end = num_keys
    return last_key, tl.maximum(seen_by_all, 0) // BLOCK_N * BLOCK_N, end
