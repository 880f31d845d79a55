"""What the timeline of a profiler shows: when the GPU does nothing, and what it waits for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Kernel(NamedTuple):
    """One kernel on a timeline, in microseconds.

    Attributes:
        launched: when the call that launched it returned on the CPU.
        begins, ends: when it ran on the GPU.
    """

    launched: float
    begins: float
    ends: float


class Gap(NamedTuple):
    """A time in which the GPU does nothing.

    Attributes:
        begins, ends: in microseconds.
        waits_for: "CPU" if no launched kernel is left to run, else "GPU".
    """

    begins: float
    ends: float
    waits_for: str


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


def shares(kernels: Sequence[Kernel], gaps: Iterable[Gap]) -> dict[str, float]:
    """Which share of the time from the first beginning to the last end is spent on what.

    Returns:
        "works", "CPU" and "GPU": these add up to 1.
    """
    whole = max(kernel.ends for kernel in kernels) - min(kernel.begins for kernel in kernels)
    found = {"CPU": 0.0, "GPU": 0.0}
    for gap in gaps:
        found[gap.waits_for] += (gap.ends - gap.begins) / whole
    return {"works": 1 - sum(found.values()), **found}


def recorded(events: Iterable[Sequence[float]]) -> list[Kernel]:
    """Kernels from rows of a kept profile: begins, takes, when its launch began, what that took."""
    return [Kernel(asked + took, begins, begins + takes) for begins, takes, asked, took in events]


def of_trace(events: Iterable[Mapping[str, Any]]) -> list[Kernel]:
    """The kernels, copies and fills of a trace that `export_chrome_trace` wrote.

    Args:
        events: its "traceEvents". A launch and what it launched have one correlation id.
    """
    work, launched = [], {}
    for event in events:
        category, arguments = event.get("cat"), event.get("args", {})
        if category in ("kernel", "gpu_memcpy", "gpu_memset"):
            work.append(event)
        elif category in ("cuda_runtime", "cuda_driver") and "correlation" in arguments:
            launched[arguments["correlation"]] = event["ts"] + event["dur"]
    return [
        Kernel(launched[event["args"]["correlation"]], event["ts"], event["ts"] + event["dur"])
        for event in work
    ]


def faster(kernels: Sequence[Kernel], factor: float) -> float:
    """How long the same launches of one stream take, in microseconds, with faster kernels.

    A kernel begins when it is launched and the one before it has ended, and as much later as on the
    record.

    Args:
        kernels: at least one; no two of them run at the same time.
        factor: of the time that each kernel runs, 0.5 if it is twice as fast.
    """
    in_order = sorted(kernels, key=lambda kernel: kernel.begins)
    end = was = in_order[0].begins
    for kernel in in_order:
        asked = min(kernel.launched, kernel.begins)
        late = kernel.begins - max(asked, min(was, kernel.begins))
        end = max(asked, end) + late + factor * (kernel.ends - kernel.begins)
        was = kernel.ends
    return end - in_order[0].begins
