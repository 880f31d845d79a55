"""Takes every group to have GROUP rows."""

import triton
import triton.language as tl

EXPECT = "The last group may have fewer rows"


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    group = tile // (GROUP * tiles_n)
    first_m = group * GROUP
    height = GROUP
    within = tile % (GROUP * tiles_n)
    return first_m + within % height, within // height
