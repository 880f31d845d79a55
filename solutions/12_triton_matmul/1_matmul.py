"""Solution of exercise 12.1: A matrix product, tile by tile.

Write the kernel. A program asks `grouped_tile` for its tile of c, walks along k in steps of
BLOCK_K with `tl.dot`, and stores the tile. The sizes are any numbers, so there are three tails:
of m, of n and of k. Inputs and output may be float16; the sum is kept in float32. Give `tl.dot`
the argument `input_precision=PRECISION`.

Generated from matmul_kernel in yaie/course/lessons/ops/triton/matmul.py.
Edit it there, and run `python -m yaie.course build`.
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
    tile_m, tile_n = grouped_tile(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    # Rows beyond the end wrap around: loaded in vain but from valid memory, and never stored.
    a_tile = a_ptr + (rows % m).to(tl.int64)[:, None] * k + inner[None, :]
    b_tile = b_ptr + inner.to(tl.int64)[:, None] * n + (columns % n)[None, :]

    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = inner < k - start  # beyond k the products must be 0
        a = tl.load(a_tile, mask=inside[None, :], other=0.0)
        b = tl.load(b_tile, mask=inside[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * tl.cast(n, tl.int64)  # an n of 1 is a constant

    c_tile = c_ptr + rows.to(tl.int64)[:, None] * n + columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_tile, total.to(c_ptr.dtype.element_ty), mask=inside)
