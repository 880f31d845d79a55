"""Every KV head is given the query heads of the first."""

import triton
import triton.language as tl

EXPECT = "heads of KV head 0"


@triton.jit
def find_queries(rows, kv_head, group):
    return rows // group, rows % group


@triton.jit
def find_slots(table, keys, end, BLOCK_SIZE: tl.constexpr):
    block = tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0)
    return block.to(tl.int64) * BLOCK_SIZE + keys % BLOCK_SIZE
