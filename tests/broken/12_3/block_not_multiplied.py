"""Block and offset are added as they are."""

import triton
import triton.language as tl

EXPECT = "A block has BLOCK_SIZE slots"


@triton.jit
def find_queries(rows, kv_head, group):
    return rows // group, kv_head * group + rows % group


@triton.jit
def find_slots(table, keys, end, BLOCK_SIZE: tl.constexpr):
    block = tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0)
    return block.to(tl.int64) + keys % BLOCK_SIZE
