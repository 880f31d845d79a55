"""Row kernels: sum and softmax, each reading its row from memory once.

A row is read into registers whole, so whatever is computed of it costs one read. A program takes
row after row, from its own number on in steps of the number of programs; with as many programs as
rows, that is one row each.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from yaie.ops.triton.norm import LONGEST_ROW, launch_over_rows
from yaie.ops.triton.runtime import launches


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


@triton.jit
def long_softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Softmax of one row of any length: a running maximum and sum, then a second read."""
    start = tl.program_id(0).to(tl.int64) * columns
    offsets = tl.arange(0, BLOCK)
    highest = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for column in range(0, columns, BLOCK):
        inside = column + offsets < columns
        x = tl.load(x_ptr + start + column + offsets, mask=inside, other=float("-inf"))
        x = x.to(tl.float32)
        higher = tl.maximum(highest, tl.max(x))
        finite = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf is NaN
        total = total * tl.exp(highest - finite) + tl.sum(tl.exp(x - finite))
        highest = higher
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    inverse = tl.where(total == 0.0, 0.0, 1.0 / total)
    for column in range(0, columns, BLOCK):
        inside = column + offsets < columns
        x = tl.load(x_ptr + start + column + offsets, mask=inside).to(tl.float32)
        tl.store(out_ptr + start + column + offsets, tl.exp(x - highest) * inverse, mask=inside)


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """The sum of one row: each lane of the block adds up its own columns, then all lanes meet."""
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for column in range(0, columns, BLOCK):
        inside = column + offsets < columns
        x = tl.load(x_ptr + row * columns + column + offsets, mask=inside, other=0.0)
        sums += x.to(tl.float32)
    tl.store(out_ptr + row, tl.sum(sums))


@launches()
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row of `[rows, columns]`."""
    rows, columns = x.shape
    out = torch.empty_like(x)
    if columns > LONGEST_ROW and rows:
        long_softmax_kernel[(rows,)](x, out, columns, BLOCK=8192, num_warps=16)
    else:
        launch_over_rows("softmax", softmax_kernel, (x, out))
    return out


@launches(float32_result=0)
def row_sum(x: torch.Tensor) -> torch.Tensor:
    """The sum of each row of `[rows, columns]`, float32."""
    rows, columns = x.shape
    out = x.new_empty(rows, dtype=torch.float32)
    if rows:
        block = min(triton.next_power_of_2(max(columns, 1)), 4096)
        row_sum_kernel[(rows,)](x, out, columns, BLOCK=block, num_warps=4 if block > 512 else 1)
    return out
