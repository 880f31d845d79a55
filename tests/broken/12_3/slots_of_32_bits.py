"""The slot is computed in 32 bits."""

import triton
import triton.language as tl

EXPECT = "does not fit in 32 bits"


@triton.jit
def find_queries(rows, kv_head, group):
    return rows // group, kv_head * group + rows % group


@triton.jit
def find_slots(table, keys, end, BLOCK_SIZE: tl.constexpr):
    block = tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0)
    return block * BLOCK_SIZE + keys % BLOCK_SIZE
