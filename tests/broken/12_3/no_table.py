"""The cache is taken to be contiguous."""

import triton
import triton.language as tl

EXPECT = "Where it lies the table says"


@triton.jit
def find_queries(rows, kv_head, group):
    return rows // group, kv_head * group + rows % group


@triton.jit
def find_slots(table, keys, end, BLOCK_SIZE: tl.constexpr):
    return keys.to(tl.int64)
