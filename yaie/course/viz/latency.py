"""Warps that wait for memory and take turns at an arithmetic unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

LEFT, HEAD, LANE, RIGHT = 0.95, 0.35, 0.24, 0.2  # inches


@dataclass(frozen=True)
class Span:
    """What a warp does from cycle `start` to cycle `end`: "load" (it waits) or "compute"."""

    warp: int
    kind: str
    start: int
    end: int


def draw_latency(
    spans: Sequence[Span], num_cycles: int | None = None, at: style.Place | None = None
) -> Figure:
    """Draw a lane for each warp, and below them when the unit that they share is busy.

    Args:
        num_cycles: how many cycles are as wide as the page; by default those there are.
    """
    if not spans:
        raise ValueError("spans must hold at least one span, got none")
    end = max(span.end for span in spans)
    num_cycles = num_cycles or end
    warps = max(span.warp for span in spans) + 1
    lanes = [f"warp {warp}" for warp in range(warps)]
    page = style.Page(style.WIDTH, HEAD + LANE * (warps + 1) + 0.45, at)
    unit = (style.WIDTH - LEFT - RIGHT) / num_cycles
    for lane, name in enumerate([*lanes, "the unit"]):
        style.put(page.ax, LEFT - 0.1, HEAD + (lane + 0.5) * LANE, name, ha="right",
                  weight="bold" if lane == warps else "normal")  # fmt: skip
    busy = 0
    for span in spans:
        if span.start >= num_cycles:
            continue
        x, length = LEFT + span.start * unit, (min(span.end, num_cycles) - span.start) * unit
        color = style.series_color(span.warp)
        if span.kind == "compute":
            busy += min(span.end, num_cycles) - span.start
            for lane in (span.warp, warps):
                y = HEAD + lane * LANE + 0.03 + 0.06 * (lane == warps)
                style.box(page.ax, x, y, length, LANE - 0.06, face=color, radius=0.0)
        else:
            y = HEAD + (span.warp + 0.5) * LANE
            page.ax.plot([x, x + length], [y, y], color=style.tint(color, 0.5), lw=1.2)
    shown = min(end, num_cycles)
    text = f"the unit works in {busy} of {shown} cycles, {busy / shown:.0%}"
    style.put(page.ax, LEFT, 0.17, text, style.BODY, weight="bold")
    bottom = HEAD + LANE * (warps + 1) + 0.1
    for cycle in range(0, num_cycles + 1, _step(num_cycles)):
        x = LEFT + cycle * unit
        style.put(page.ax, x, bottom + 0.15, str(cycle), style.SMALL, style.MUTED, "center")
    page.say(f"{style.count(warps, 'warp')} take turns, a load each, then arithmetic: {text}")
    return page.figure


def _step(num_cycles: int) -> int:
    """Between the numbers on the scale, so that there are about ten."""
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        if num_cycles / step <= 12:
            return step
    return num_cycles
