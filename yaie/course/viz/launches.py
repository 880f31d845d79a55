"""Launches are asked for on the CPU and carried out later on the GPU, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.12
LEFT = 1.0
UNIT = 0.62  # inches of one unit of time, which has no name: nothing here is measured
HEIGHT = 0.3
TOP, BOTTOM = 0.35, 1.15  # of the CPU's row and of the GPU's


@dataclass(frozen=True)
class Call:
    """What the CPU does next.

    Attributes:
        name: what is written on it.
        takes: how long it keeps the CPU; for a call that waits, this is at least so long.
        runs: how long the GPU will work on it; 0 if it is no launch.
        waits: whether it returns only when all earlier work is done.
        fails: whether the GPU stops in it: nothing after it runs.
    """

    name: str
    takes: float = 1.0
    runs: float = 0.0
    waits: bool = False
    fails: bool = False


def draw_launches(calls: Sequence[Call], at: style.Place | None = None) -> Figure:
    """Draw the calls of the CPU above, the kernels of the GPU below, and what joins them.

    From a kernel that fails on, the GPU does nothing, and the first call that waits is told.
    """
    now, free = 0.0, 0.0
    host, device = [], []
    failed = False
    for call in calls:
        begin = now
        now += call.takes
        if call.runs and not failed:
            start = max(begin + call.takes, free)
            free = start + call.runs
            device.append((call, start, begin + call.takes))
            failed = call.fails
        if call.waits:
            now = max(now, free)
        host.append((call, begin, now, failed and call.waits))
    width = LEFT + max(now, free) * UNIT + MARGIN
    page = style.Page(max(width, 6.0), BOTTOM + HEIGHT + 0.32, at)
    for y, name in ((TOP, "CPU"), (BOTTOM, "GPU")):
        style.put(page.ax, MARGIN, y + HEIGHT / 2, name, style.BODY, weight="bold")
    for call, begin, end, told in host:
        color = style.VERMILION if told else style.SKY if call.waits else style.BLUE
        _bar(page, TOP, begin, end, call.name, color)
    for call, start, asked in device:
        color = style.VERMILION if call.fails else style.GREEN
        _bar(page, BOTTOM, start, start + call.runs, call.name.partition("<")[0], color)
        page.ax.plot([LEFT + asked * UNIT - 0.04, LEFT + start * UNIT + 0.06],
                     [TOP + HEIGHT, BOTTOM], color=style.FAINT, lw=1.2, zorder=0)  # fmt: skip
    style.put(page.ax, page.width - MARGIN, BOTTOM + HEIGHT + 0.18, "time, not to scale →",
              style.SMALL, style.MUTED, "right")  # fmt: skip
    calls = [call.name for call, *_ in host]
    runs = [call.name.partition("<")[0] for call, *_ in device]
    page.say(f"The CPU calls {style.some(calls, 12)}")
    page.say(f"Later, one after the other, the GPU runs {style.some(runs, 12) or 'nothing'}")
    if failed:
        told = [call.name for call, _, _, told in host if told]
        page.say(f"It fails in the last of these; told first: {style.some(told[:1]) or 'nobody'}")
    return page.figure


def _bar(page: style.Page, y: float, begin: float, end: float, name: str, color: str) -> None:
    x, width = LEFT + begin * UNIT, (end - begin) * UNIT - 0.04
    style.box(page.ax, x, y, width, HEIGHT, style.tint(color, 0.45), color, 0.8, 0.03)
    label = style.shorten(name, width - 0.06, style.SMALL)
    style.put(page.ax, x + width / 2, y + HEIGHT / 2, label, style.SMALL, ha="center")
