"""Exercise 23.1: What the GPU waits for.

A profiler's timeline is a list of kernels: when each was launched, when it began, when it ended.
Find the gaps in which the GPU does nothing, and say for each whether the GPU waited for the CPU
to launch something, or for itself. The docstring has the rules.

You have
- `kernel.launched`: a float, in microseconds: when the call that launched the kernel returned;
  the kernel may begin a little earlier
- `kernel.begins`, `kernel.ends`: floats; the kernels come in any order, and some run at the same
  time
- `Gap(begins, ends, waits_for)`: what the list holds; `waits_for` is "CPU" or "GPU"
- `sorted(kernels, key=lambda kernel: kernel.begins)`: a list, the earliest beginning first
- `math.inf`: more than any number

In a terminal: yaie check 23.1, yaie hint 23.1, yaie reset 23.1.
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
    raise NotImplementedError("Exercise 23.1: What the GPU waits for")
