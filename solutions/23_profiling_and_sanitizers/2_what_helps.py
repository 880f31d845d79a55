"""Solution of exercise 23.2: What limits a kernel, and what would help.

Read a profile whose kernel you do not know: say what limits the kernel, and predict for each
proposed change the least time that it would leave. The rules are in the docstring, with a trap
that is in every table of ncu.

Generated from what_helps in yaie/course/lessons/bottleneck.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from yaie.course.lessons.bottleneck import (
    CORES,
    IN_EACH_SM,
    MEMORY,
    SMS,
    USED,
    WAITS,
    Change,
    waves_of,
)


def what_helps(metrics: Mapping[str, float], changes: Sequence[Change]) -> tuple[str, list[float]]:
    """What limits a kernel, and the least time that each change would leave.

    Args:
        metrics: of one launch. `nanoseconds`: its time. For each part in `MEMORY` and `CORES`, how
            much of its peak it reached, in percent of that time. `thread_blocks`: of the grid. For
            the reasons in `WAITS`, how many cycles a warp waited for that, on average, from one
            instruction to the next. What else there is does not matter here.

    Returns:
        The limit, one of the keys of `NAMES`, and a number of nanoseconds for each change.

    **The trap.** ncu shows the parts in `IN_EACH_SM` as the average over all SMs of the GPU. A grid
    of fewer thread blocks than `SMS` leaves some SMs without any, and these count as 0 percent. In
    the SMs that have one, the percentage is `SMS` / `thread_blocks` times as high. DRAM and L2
    belong to the whole GPU: what is shown is right.

    **The limit** is the first of these that holds, with the percentages of SMs that work:

    1. A part is used up: it has `USED` percent or more. Of `MEMORY` only the outermost such part
       counts, because what comes from DRAM passes through L2 and L1 and keeps them busy, too. Of
       that one and all such parts of `CORES`, the part with the highest percentage is the limit.
    2. `waves_of(metrics)` is below 1: "grid".
    3. The reason of `WAITS` with the most cycles.

    **The least time** after a change is the largest of these:

    - For every part, the time for which it is busy: its percentage of `nanoseconds`, times what
      `work` leaves of it. With `blocks` times as many thread blocks, more SMs may have one, and
      the parts in `IN_EACH_SM` share their work with these.
    - Only if the limit is no part, so that warps wait: they wait as long as before, however little
      there is to do. A GPU computes the waves one after the other, and the time is proportional to
      max(1, waves) × the work of a thread block. `blocks` multiplies the waves and divides the work
      of a thread block; `warps` divides the waves. Before the change this time is `nanoseconds`.
    """

    def working(blocks: float = 1.0) -> float:
        """The share of the SMs that have a thread block."""
        return min(1.0, metrics["thread_blocks"] * blocks / SMS)

    parts = [*MEMORY, *CORES]
    percent = {p: metrics[p] / (working() if p in IN_EACH_SM else 1.0) for p in parts}
    memory = [part for part in MEMORY if percent[part] >= USED][:1]
    cores = [part for part in CORES if percent[part] >= USED]
    waves = waves_of(metrics)
    if memory or cores:
        limit = max(memory + cores, key=lambda part: percent[part])
    elif waves < 1:
        limit = "grid"
    else:
        limit = max(WAITS, key=lambda reason: metrics[reason])

    least = []
    for change in changes:
        times = []
        for part in parts:
            busy = metrics[part] / 100 * metrics["nanoseconds"] * change.work.get(part, 1.0)
            times.append(busy / (working(change.blocks) if part in IN_EACH_SM else 1.0))
        if limit not in parts:
            after = max(1.0, waves * change.blocks / change.warps) / change.blocks
            times.append(metrics["nanoseconds"] * after / max(1.0, waves))
        least.append(max(times))
    return limit, least
