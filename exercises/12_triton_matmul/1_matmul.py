"""Exercise 12.1: A matrix product, tile by tile.

Write the kernel. A program asks `grouped_tile` for its tile of c, walks along k in steps of
BLOCK_K with `tl.dot`, and stores the tile. The sizes are any numbers, so there are three tails:
of m, of n and of k. Inputs and output may be float16; the sum is kept in float32. Give `tl.dot`
the argument `input_precision=PRECISION`.

You have
- `a_ptr`, `b_ptr`, `c_ptr`: `[m, k]`, `[k, n]` and `[m, n]`, one row after the other
- `grouped_tile(tile, tiles_m, tiles_n, GROUP)`: returns the row and the column of a program's
  tile, counted in tiles
- `BLOCK_M`, `BLOCK_N`, `BLOCK_K`: constants, powers of two: a tile of c is BLOCK_M × BLOCK_N
- `tl.dot(a, b, total, input_precision=PRECISION)`: returns total + a b for blocks `[M, K]`, `[K,
  N]` and `[M, N]`
- `tl.zeros((BLOCK_M, BLOCK_N), tl.float32)`, `tl.cdiv(a, b)`: a block of zeros; a / b, rounded up
- `rows[:, None]`, `columns[None, :]`: a block as a column, and as a row; together they give `[M,
  N]`
- `c_ptr.dtype.element_ty`: the dtype behind a pointer, which `x.to(...)` takes

In a terminal: yaie check 12.1, yaie hint 12.1, yaie reset 12.1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from yaie.course.lessons.ops.triton.matmul import grouped_tile


@triton.jit
def matmul_kernel(
    a_ptr,  # [m, k]
    b_ptr,  # [k, n]
    c_ptr,  # [m, n]
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """c = a b, a tile of `[BLOCK_M, BLOCK_N]` per program, in steps of BLOCK_K along k.

    `grouped_tile` says which tile a program owns, in an order with groups of GROUP. No size has to
    be a multiple of its block. Products are summed in float32 and rounded once, at the store.
    PRECISION is the `input_precision` of `tl.dot`.
    """
    pass  # Exercise 12.1: A matrix product, tile by tile
