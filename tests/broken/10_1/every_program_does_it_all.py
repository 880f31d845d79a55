"""Loops over the whole vector in every program, as a kernel with one program would."""

import triton
import triton.language as tl

EXPECT = "is stored twice"


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        inside = offsets < size
        x = tl.load(x_ptr + offsets, mask=inside)
        y = tl.load(y_ptr + offsets, mask=inside)
        tl.store(out_ptr + offsets, x + y, mask=inside)
