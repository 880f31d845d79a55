"""Masks the tail of k and says nothing of its value."""

import triton
import triton.language as tl

from yaie.ops.triton.matmul import grouped_tile

EXPECT = "has any value, and takes part"


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile_m, tile_n = grouped_tile(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + (rows % m)[:, None] * k + inner[None, :]
    b_tile = b_ptr + inner[:, None] * n + (columns % n)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = inner < k - start
        a = tl.load(a_tile, mask=inside[None, :])
        b = tl.load(b_tile, mask=inside[:, None])
        total = tl.dot(a, b, total, input_precision=PRECISION)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * n
    c_tile = c_ptr + rows[:, None] * n + columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_tile, total, mask=inside)
