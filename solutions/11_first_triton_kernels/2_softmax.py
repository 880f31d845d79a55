"""Solution of exercise 11.2: Softmax of rows, read once.

Write the kernel for rows that fit in one block. Each row is loaded once and stored once; maximum,
exponentials and sum stay in registers. There may be fewer programs than rows. A row that holds
only -inf gives zeros (exercise 07.3).

Generated from softmax_kernel in yaie/course/lessons/ops/triton/rows.py.
Edit it there, and run `python -m yaie.course build`.
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
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    first = tl.program_id(0)
    for row in tl.range(first, rows, tl.num_programs(0), num_stages=STAGES):
        start = tl.cast(row, tl.int64) * columns
        # What lies beyond the row counts as -inf, whose exponential is 0.
        x = tl.load(x_ptr + start + offsets, mask=inside, other=float("-inf")).to(tl.float32)
        highest = tl.max(x)
        highest = tl.where(highest == float("-inf"), 0.0, highest)  # -inf - -inf is NaN
        weights = tl.exp(x - highest)
        total = tl.sum(weights)
        inverse = tl.where(total == 0.0, 0.0, 1.0 / total)  # a row of -inf alone gives zeros
        tl.store(out_ptr + start + offsets, weights * inverse, mask=inside)
