"""Solution of exercise 12.2: An order of tiles that loads less.

Compute the row and the column of tile number `tile`. Tiles come in groups of GROUP rows of tiles.
Inside a group: down its rows, then the next column. The last group may be lower. It is a function
that kernels call, and `//`, `%` and `min` work as in Python.

Generated from grouped_tile in yaie/course/lessons/ops/triton/matmul.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """The row and the column of tile number `tile`, in an order that reads less from memory.

    Programs that run together should share rows of a and columns of b in the L2 cache. So the
    tiles_m × tiles_n tiles come in groups of GROUP rows of tiles, the last of which may be lower:
    down the rows of the group, then the next column; when the group is done, the next group.
    """
    group = tile // (GROUP * tiles_n)
    first_m = group * GROUP
    height = min(tiles_m - first_m, GROUP)  # the last group may be lower
    within = tile % (GROUP * tiles_n)
    return first_m + within % height, within // height
