"""Tiles of a matrix product on the SMs of a GPU, round after round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

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
    """

    title: str
    work: Sequence[Parts]
    steps: int
    until: int = 0


def draw_waves(state: Waves, at: Place | None = None) -> Figure:
    """Draw a row for each SM and a bar for each part of a tile; parts of split tiles are orange."""
    sms = len(state.work)
    ends = [sum(last - first for _, first, last in parts) for parts in state.work]
    end, until = max(ends), max(state.until, *ends)
    few = sms <= 40  # then a row has room for a number
    width, left, top, row = 3.05, 0.5, 0.42, 0.2 if few else 0.02
    page = Page(width, top + row * sms + 0.42, at)
    grid = page.grid(left, top, (width - left - MARGIN) / until, row, 0.0, row * 0.12 if few else 0)
    split = 0
    for sm, parts in enumerate(state.work):
        grid.bar(sm, 0, end, style.tint(style.VERMILION, 0.3))
        begin = 0
        for tile, first, last in parts:
            whole = last - first == state.steps
            split += not whole
            face = style.tint(style.BLUE if whole else style.ORANGE, 0.7)
            ends_at = begin + last - first
            grid.bar(sm, begin, ends_at, face, f"{tile}" if few else "", size=6)
            x = grid.x(ends_at)
            page.rect(x - 0.01, grid.y(sm), 0.01, row - grid.gap_below, style.PAPER)
            begin = ends_at
    for sm in (0, sms - 1):
        grid.name(sm, f"SM {sm}", 6.5)
    busy = sum(ends) / (end * sms)
    words = f"{state.title}: {end:,} steps, busy {busy:.0%}"
    page.put(MARGIN, 0.18, words, style.SMALL, weight="bold")
    for time in style.ticks(until, 4):
        page.note(grid.x(time), page.height - 0.26, f"{time:,g}", "center")
    page.note(left, page.height - 0.1, "steps; orange: parts of tiles, red: idle")
    page.say(f"{words}, {style.count(split, 'part')} of split tiles on {sms} SMs")
    return page.figure
