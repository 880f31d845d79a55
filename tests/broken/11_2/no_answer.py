"""Computes and returns nothing."""

import triton
import triton.language as tl

EXPECT = "It returns two whole numbers"


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    group = tile // (GROUP * tiles_n)
    group += tile % (GROUP * tiles_n)
