"""The mask lets the next entry of the table in."""

import triton
import triton.language as tl

EXPECT = "was loaded, and the wanted keys end"


@triton.jit
def find_queries(rows, kv_head, group):
    return rows // group, kv_head * group + rows % group


@triton.jit
def find_slots(table, keys, end, BLOCK_SIZE: tl.constexpr):
    block = tl.load(table + keys // BLOCK_SIZE, mask=keys < end + BLOCK_SIZE, other=0)
    return block.to(tl.int64) * BLOCK_SIZE + keys % BLOCK_SIZE
