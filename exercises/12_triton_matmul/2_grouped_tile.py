"""Exercise 12.2: An order of tiles that loads less.

Compute the row and the column of tile number `tile`. Tiles come in groups of GROUP rows of tiles.
Inside a group: down its rows, then the next column. The last group may be lower. It is a function
that kernels call, and `//`, `%` and `min` work as in Python.

You have
- `tile`: the number of a tile, from 0 to tiles_m × tiles_n - 1; not the program's number if a
  program computes several tiles
- `tiles_m`, `tiles_n`: how many tiles c has down and across
- `GROUP`: a constant, the rows of tiles in a group

In a terminal: yaie check 12.2, yaie hint 12.2, yaie reset 12.2.
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
    pass  # Exercise 12.2: An order of tiles that loads less
