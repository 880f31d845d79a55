"""Exercise 11.1: Add two vectors, one block per program.

Write the kernel. Work out which elements are this program's block and which of them exist, load x
and y there, and store the sum. `size` is any number, `BLOCK` a power of two, and the last block
may reach past the end.

You have
- `x_ptr`, `y_ptr`, `out_ptr`: addresses of `size` numbers each; `x_ptr + offsets` is a block of
  addresses
- `tl.program_id(0)`: the number of this program
- `tl.arange(0, BLOCK)`: the block 0, 1, …, BLOCK - 1
- `tl.load(addresses, mask=inside)`: returns a block; nothing is read where `inside` is False
- `tl.store(addresses, block, mask=inside)`: writes a block where `inside` is True

In a terminal: yaie check 11.1, yaie hint 11.1, yaie reset 11.1.
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
    pass  # Exercise 11.1: Add two vectors, one block per program
