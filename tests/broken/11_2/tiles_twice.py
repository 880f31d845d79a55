"""Goes to the next column after as many programs as there are columns."""

import triton
import triton.language as tl

EXPECT = "both get tile"


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    group = tile // (GROUP * tiles_n)
    first_m = group * GROUP
    height = min(tiles_m - first_m, GROUP)
    within = tile % (GROUP * tiles_n)
    return first_m + within % height, within // tiles_n
