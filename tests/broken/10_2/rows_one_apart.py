"""Begins each row one element after the one before."""

import triton
import triton.language as tl

EXPECT = "so row r begins at element 6 × r"


@triton.jit(do_not_specialize=["rows"])
def softmax_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row + offsets, mask=inside, other=float("-inf"))
        weights = tl.exp(x - tl.max(x))
        tl.store(out_ptr + row + offsets, weights / tl.sum(weights), mask=inside)
