"""Tiles of a matrix product on the SMs of a GPU, round after round."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page

MARGIN = 0.14
Parts = Sequence[tuple[int, int, int]]


@dataclass(frozen=True)
class Waves:
    """Who computes what.

    Attributes:
        title: which way it is.
        work: for each SM, (tile, first step, last step) in its order.
        steps: of a tile.
        until: steps that the page has room for, so that several can be compared.
        every: draw every n-th SM only, from SM 0 on, where 132 rows would be too many.
        unit: what a step is called.
    """

    title: str
    work: Sequence[Parts]
    steps: int
    until: int = 0
    every: int = 1
    unit: str = "step"


def draw_waves(state: Waves) -> Figure:
    """Draw a row for each shown SM, a bar for each part of a tile, orange if the tile is split."""
    sms, shown = len(state.work), range(0, len(state.work), state.every)
    ends = [sum(last - first for _, first, last in parts) for parts in state.work]
    end, until = max(ends), max(state.until, *ends)
    few = len(shown) <= 40  # then a row has room for a number
    width, left, top, row = 3.05, 0.5, 0.42, 0.2 if few else 0.02
    page = Page(width, top + row * len(shown) + 0.42)
    grid = page.grid(left, top, (width - left - MARGIN) / until, row, 0.0, row * 0.12 if few else 0)
    for number, sm in enumerate(shown):
        grid.bar(number, 0, end, style.tint(style.INK, 0.3))
        begin = 0
        for tile, first, last in state.work[sm]:
            whole = last - first == state.steps
            face = style.tint(style.BLUE if whole else style.ORANGE, 0.7)
            ends_at = begin + last - first
            grid.bar(number, begin, ends_at, face, f"{tile}" if few else "", size=6)
            x = grid.x(ends_at)
            page.rect(x - 0.01, grid.y(number), 0.01, row - grid.gap_below, style.PAPER)
            begin = ends_at
        if (few and state.every > 1) or number in (0, len(shown) - 1):
            grid.name(number, f"SM {sm}", 6.5)
    busy = sum(ends) / (end * sms)
    words = f"{state.title}: {style.count(end, state.unit)}, busy {busy:.0%}"
    page.put(MARGIN, 0.18, words, style.SMALL, weight="bold")
    for time in style.ticks(until, 4):
        page.note(grid.x(time), page.height - 0.26, f"{time:,g}", "center")
    split = sum(last - first < state.steps for parts in state.work for _, first, last in parts)
    colors = "orange: parts of tiles, gray: idle" if split else "gray: idle"
    page.note(left, page.height - 0.1, f"{state.unit}s; {colors}")
    page.say(f"{words}, {style.count(split, 'part')} of split tiles on {sms} SMs")
    return page.figure
