"""Query head h is taken to read KV head h % (KV heads)."""

import triton
import triton.language as tl

EXPECT = "those that share one are neighbors"


@triton.jit
def find_queries(rows, kv_head, group):
    return rows // group, kv_head + rows % group * 2


@triton.jit
def find_slots(table, keys, end, BLOCK_SIZE: tl.constexpr):
    block = tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0)
    return block.to(tl.int64) * BLOCK_SIZE + keys % BLOCK_SIZE
