"""Takes a group to have GROUP × tiles_m tiles."""

import triton
import triton.language as tl

EXPECT = "GROUP × tiles_n tiles in all"


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    group = tile // (GROUP * tiles_m)
    first_m = group * GROUP
    height = min(tiles_m - first_m, GROUP)
    within = tile % (GROUP * tiles_m)
    return first_m + within % height, within // height
