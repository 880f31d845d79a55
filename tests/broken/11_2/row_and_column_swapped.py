"""Returns the column first."""

import triton
import triton.language as tl

EXPECT = "Row and column are swapped"


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    group = tile // (GROUP * tiles_n)
    first_m = group * GROUP
    height = min(tiles_m - first_m, GROUP)
    within = tile % (GROUP * tiles_n)
    return within // height, first_m + within % height
