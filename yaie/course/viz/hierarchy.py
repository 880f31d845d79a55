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
    style.check_some(levels, "levels")
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
        corner, face = (x + (column - side) / 2, bottom - side), style.tint(color, 0.35)
        page.rect(*corner, side, side, face, edgecolor=color, linewidth=0.8)
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
    return _with_unit(num_bytes, "B") if num_bytes >= 1000 else f"{num_bytes} bytes"


def _speed(bandwidth: float | None) -> str:
    return "speed not published" if bandwidth is None else _with_unit(bandwidth, "B/s")


def _with_unit(value: float, unit: str) -> str:
    """A value with its prefix, and one decimal if it is small."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            value /= factor
            decimals = value < 10 and not value.is_integer()
            return f"{value:,.{int(decimals)}f} {prefix}{unit}"
    return f"{value:,.0f} {unit}"
