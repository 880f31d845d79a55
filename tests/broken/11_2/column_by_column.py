"""Goes down all rows of a column."""

import triton
import triton.language as tl

EXPECT = "column after column"


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    return tile % tiles_m, tile // tiles_m
