"""Exercise 12.1: A matrix product, tile by tile.

Write the kernel. A program asks `grouped_tile`, which the file imports, for its tile of c, walks
along k in steps of BLOCK_K with `tl.dot`, and stores the tile. The sizes are any numbers, so
there are three tails: of m, of n and of k. Inputs and output may be float16; the sum is kept in
float32. Give `tl.dot` the argument `input_precision=PRECISION`.

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
