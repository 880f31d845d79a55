"""Entries of the table beyond the context are loaded."""

import triton
import triton.language as tl

EXPECT = "an entry may be anything"


@triton.jit
def find_queries(rows, kv_head, group):
    return rows // group, kv_head * group + rows % group


@triton.jit
def find_slots(table, keys, end, BLOCK_SIZE: tl.constexpr):
    block = tl.load(table + keys // BLOCK_SIZE)
    return block.to(tl.int64) * BLOCK_SIZE + keys % BLOCK_SIZE
