"""Solution of exercise 23.1: What the GPU waits for.

A profiler's timeline is a list of kernels: when each was launched, when it began, when it ended.
Find the gaps in which the GPU does nothing, and say for each whether the GPU waited for the CPU
to launch something, or for itself. The docstring has the rules.

Generated from find_gaps in yaie/course/lessons/timeline.py.
Edit it there, and run `python -m yaie.course build`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from yaie.course.lessons.timeline import Gap, Kernel


def find_gaps(kernels: Sequence[Kernel]) -> list[Gap]:
    """The gaps between the first kernel's beginning and the last one's end, in the order of time.

    Args:
        kernels: in any order. Kernels of several streams may run at the same time.

    While no kernel runs, the GPU waits for the CPU as long as every launched kernel has run, and
    for itself from the moment at which a kernel is launched that has not begun: it passes on what
    a kernel depends on, or begins the next node of a graph. A gap in which both occur is returned
    as two, which meet at that moment. A gap has a length above 0.
    """
    waiting = sorted(kernels, key=lambda kernel: kernel.begins)
    gaps: list[Gap] = []
    end = math.inf
    for i, kernel in enumerate(waiting):
        if kernel.begins > end:
            launched = min(later.launched for later in waiting[i:])
            middle = min(max(launched, end), kernel.begins)
            pieces = (Gap(end, middle, "CPU"), Gap(middle, kernel.begins, "GPU"))
            gaps += [gap for gap in pieces if gap.ends > gap.begins]
        end = kernel.ends if i == 0 else max(end, kernel.ends)
    return gaps
