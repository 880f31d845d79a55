"""Exercise 22.4: What limits a kernel.

Read a profile: from the percentages that each part of the GPU reached, the size of the grid, and
the cycles that warps waited, say what limits the kernel. The rules, in their order, are in the
docstring.

In a terminal: yaie check 22.4, yaie hint 22.4, yaie reset 22.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from yaie.course.lessons.bottleneck import CORES, MEMORY, USED, WAITS


def limited_by(metrics: Mapping[str, float]) -> str:
    """What limits a kernel: one of the keys of `NAMES`.

    Args:
        metrics: of one launch. For the parts in `MEMORY` and `CORES`, how much of its peak each
            reached, in percent of the time of the kernel. `waves`: the thread blocks of the grid,
            divided by how many the whole GPU runs together. For the reasons in `WAITS`, how many
            cycles a warp waited for that, on average, from one instruction to the next.

    A part counts as used up from `USED` percent on, `USED` included. The first of these that holds:

    1. Some part is used up. Of `MEMORY` only the outermost such part counts: what comes from DRAM
       passes through L2 and L1, too, and keeps them busy. Of `CORES` the one with the highest
       percentage counts. If there is one of each, the one with the higher percentage is returned.
    2. `waves` is below 1: "grid".
    3. The reason of `WAITS` with the most cycles.

    How many warps there were (occupancy) does not matter. It is a means to keep parts busy.
    """
    raise NotImplementedError("Exercise 22.4: What limits a kernel")
