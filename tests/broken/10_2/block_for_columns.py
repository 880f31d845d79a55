"""Begins row r at element r × BLOCK."""

import triton
import triton.language as tl

EXPECT = "row r begins at element r × row length"


@triton.jit(do_not_specialize=["rows"])
def softmax_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        start = row * BLOCK
        x = tl.load(x_ptr + start + offsets, mask=inside, other=float("-inf")).to(tl.float32)
        highest = tl.max(x)
        highest = tl.where(highest == float("-inf"), 0.0, highest)
        weights = tl.exp(x - highest)
        total = tl.sum(weights)
        total = tl.where(total == 0.0, 1.0, total)
        tl.store(out_ptr + start + offsets, weights / total, mask=inside)
