"""No tile goes without a mask."""

import triton
import triton.language as tl

EXPECT = "Right, but slow"


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
        end = tl.minimum(num_keys, first_row + BLOCK_M + past)
    else:
        last_key = tl.zeros((BLOCK_M,), tl.int32) + num_keys - 1
        end = num_keys
    return last_key, 0, end
