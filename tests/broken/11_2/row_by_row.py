"""Forgets the groups."""

import triton
import triton.language as tl

EXPECT = "GROUP makes no difference"


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    return tile // tiles_n, tile % tiles_n
