"""The memories of a GPU, to scale: how large each is, and how fast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

MARGIN, HEAD, LARGEST, ROW = 0.15, 0.62, 3.0, 0.62  # inches
THINNEST = 0.01  # of a bar that would be thinner than a pixel


@dataclass(frozen=True)
class Level:
    """A memory.

    Attributes:
        num_bytes: its size on the whole device; None if machines differ.
        bandwidth: bytes per second of the whole device; None if it is not published.
        latency: cycles until a load is answered; None where it is not counted in cycles.
    """

    name: str
    num_bytes: int | None
    bandwidth: float | None = None
    latency: int | None = None


def draw_hierarchy(levels: Sequence[Level], at: Place | None = None) -> Figure:
    """Draw squares whose areas are the sizes, and bars whose lengths are the speeds.

    Both scales are linear: what cannot be seen is that small.

    Args:
        levels: the nearest to the arithmetic units first.
    """
    if not levels:
        raise ValueError("levels must hold at least one memory, got none")
    height = HEAD + max(LARGEST + 0.25, ROW * len(levels)) + 0.1
    page = Page(style.WIDTH, height, at)
    page.put(MARGIN, 0.2, "size, by area", style.TITLE, weight="bold")
    page.say("Memories, their sizes as areas, their speeds as lengths")
    left = _squares(page, levels, height - 0.35) + 0.4
    page.put(left, 0.2, "speed, by length", style.TITLE, weight="bold")
    _bars(page, levels, left)
    return page.figure


def _squares(page: Page, levels: Sequence[Level], bottom: float) -> float:
    """Draw the squares on one line, and return where the last of them ends."""
    largest = max(level.num_bytes or 0 for level in levels)
    x = MARGIN
    for number, level in enumerate(levels):
        if level.num_bytes is None:
            continue
        side = LARGEST * math.sqrt(level.num_bytes / largest)
        column = max(side, 0.28)
        color = style.series_color(number)
        corner = x + (column - side) / 2, bottom - side
        page.box(
            *corner, side, side, face=style.tint(color, 0.35), edge=color, radius=0.0, line=0.8
        )
        page.put(x + column / 2, bottom + 0.16, str(number + 1), style.SMALL, ha="center")
        x += column + 0.12
    return x - 0.12


def _bars(page: Page, levels: Sequence[Level], left: float) -> None:
    fastest = max(level.bandwidth or 0.0 for level in levels)
    room = page.width - MARGIN - left
    for number, level in enumerate(levels):
        y, color = HEAD + number * ROW, style.series_color(number)
        name = f"{number + 1}  {level.name}"
        page.put(left, y, name, weight="bold")
        facts = [] if level.num_bytes is None else [_size(level.num_bytes)]
        facts.append(_speed(level.bandwidth))
        if level.latency is not None:
            facts.append(f"about {style.count(level.latency, 'cycle')}")
        page.put(page.width - MARGIN, y, ", ".join(facts), ha="right")
        page.say(f"{level.name}: {', '.join(facts)}")
        if level.bandwidth is not None:
            length = max(room * level.bandwidth / fastest, THINNEST)
            page.box(left, y + 0.12, length, 0.2, face=color, radius=0.0)


def _size(num_bytes: int) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= unit:
            value = num_bytes / unit
            return f"{value:,.0f} {name}" if value >= 10 else f"{value:,.1f} {name}"
    return f"{num_bytes} bytes"


def _speed(bandwidth: float | None) -> str:
    if bandwidth is None:
        return "speed not published"
    if bandwidth >= 1e12:
        value = bandwidth / 1e12
        return f"{value:,.0f} TB/s" if value >= 10 else f"{value:.1f} TB/s"
    return f"{bandwidth / 1e9:,.0f} GB/s"
