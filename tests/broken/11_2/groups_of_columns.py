"""Groups columns of tiles."""

import triton
import triton.language as tl

EXPECT = "These are groups of columns"


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    group = tile // (GROUP * tiles_m)
    first_n = group * GROUP
    width = min(tiles_n - first_n, GROUP)
    within = tile % (GROUP * tiles_m)
    return within // width, first_n + within % width
