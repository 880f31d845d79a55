"""Solution of exercise 11.1: Add two vectors, one block per program.

Write the kernel. Work out which elements are this program's block and which of them exist, load x
and y there, and store the sum. `size` is any number, `BLOCK` a power of two, and the last block
may reach past the end.

Generated from add_kernel in yaie/course/lessons/ops/triton/elementwise.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_kernel(
    x_ptr,  # [size]
    y_ptr,  # [size]
    out_ptr,  # [size]
    size,
    BLOCK: tl.constexpr,
):
    """out = x + y; program p computes the elements from p × BLOCK on, BLOCK of them if they exist.

    The grid has as many programs as it takes, on axis 0.
    """
    # 64 bits, because an offset into a large tensor does not fit 32.
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=inside).to(tl.float32)
    tl.store(out_ptr + offsets, x + y, mask=inside)
