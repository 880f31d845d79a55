"""Exercise 11.2: Softmax of rows, read once.

Write the kernel for rows that fit in one block. Each row is loaded once and stored once; maximum,
exponentials and sum stay in registers. There may be fewer programs than rows. A row that holds
only -inf gives zeros (exercise 07.3).

You have
- `x_ptr`, `out_ptr`: `[rows, columns]`, one row after the other
- `BLOCK`, `STAGES`: a power of two, at least `columns`; what `num_stages=` of the loop is to be
- `tl.program_id(0)`, `tl.num_programs(0)`: the number of this program; how many there are
- `tl.range(start, end, step, num_stages=STAGES)`: the rows of a loop
- `tl.load(addresses, mask=, other=)`: returns a block with `other` where nothing is read
- `tl.max(x)`, `tl.sum(x)`, `tl.exp(x)`: the largest number of a block, its sum, and a block of
  exponentials
- `tl.where(condition, a, b)`: a where the condition holds, otherwise b
- `x.to(tl.float32)`, `float("-inf")`: another dtype; -inf
- `tl.cast(row, tl.int64)`: a number in 64 bits, since rows × columns may exceed 2³¹

In a terminal: yaie check 11.2, yaie hint 11.2, yaie reset 11.2.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def softmax_kernel(
    x_ptr,  # [rows, columns], contiguous
    out_ptr,  # [rows, columns], contiguous
    rows,
    columns,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Softmax of rows that fit in registers: one read, one write.

    Program p computes the rows p, p + number of programs, and so on. BLOCK is a power of two of at
    least `columns`. All arithmetic is in float32; a row of -inf alone gives zeros. On a GPU
    `num_stages=STAGES` of `tl.range` is how many iterations of the loop over rows are in flight.
    """
    pass  # Exercise 11.2: Softmax of rows, read once
