"""Computes the sum and keeps it."""

import triton
import triton.language as tl

EXPECT = "no program has stored anything"


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + offsets, mask=inside)
    x += tl.load(y_ptr + offsets, mask=inside)
