"""Goes along the rows inside a group."""

import triton
import triton.language as tl

EXPECT = "GROUP makes no difference"


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    group = tile // (GROUP * tiles_n)
    first_m = group * GROUP
    within = tile % (GROUP * tiles_n)
    return first_m + within // tiles_n, within % tiles_n
