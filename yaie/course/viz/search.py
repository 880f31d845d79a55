"""A search in a sorted array: which places are read, in which order, until the answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.14
LEFT = 1.25
CELL_HEIGHT = 0.3
HEAD, FOOT = 0.5, 0.42


@dataclass(frozen=True)
class Search:
    """One search for the first place that is greater than `target`.

    Attributes:
        values: the array, rising.
        reads: the places that were read, in order.
        found: the answer.
        name: of the way to search.
    """

    values: Sequence[int]
    target: int
    reads: Sequence[int]
    found: int
    name: str = ""


def draw_search(searches: Sequence[Search], at: style.Place | None = None) -> Figure:
    """Draw searches of one array below each other; the number over a cell is when it was read."""
    if not searches:
        raise ValueError("searches must have at least one, got none")
    count = len(searches[0].values)
    cell = (style.WIDTH - LEFT - MARGIN) / count
    row = HEAD + CELL_HEIGHT
    page = style.Page(style.WIDTH, len(searches) * row + FOOT, at)
    for index, search in enumerate(searches):
        y = index * row + HEAD
        style.put(page.ax, MARGIN, y + CELL_HEIGHT / 2, search.name, style.BODY, weight="bold")
        words = style.count(len(search.reads), "read")
        style.put(page.ax, MARGIN, y - 0.16, words, style.SMALL, style.MUTED)
        when = {place: number for number, place in enumerate(search.reads, 1)}
        for place, value in enumerate(search.values):
            x = LEFT + place * cell
            face = style.tint(style.BLUE, 0.4) if place in when else style.WASH
            right = place == search.found
            edge, line = (style.VERMILION, 1.8) if right else (style.PAPER, 0.8)
            style.box(page.ax, x + 0.015, y, cell - 0.03, CELL_HEIGHT, face, edge, line, 0.03)
            size = style.SMALL if cell > 0.24 else 5.5
            style.put(page.ax, x + cell / 2, y + CELL_HEIGHT / 2, str(value), size, ha="center")
            if place in when:
                style.put(page.ax, x + cell / 2, y - 0.1, str(when[place]), 6.0, style.BLUE,
                          "center")  # fmt: skip
    words = (
        f"token {searches[0].target} is of request {searches[0].found} (framed): the first whose "
        "end is greater"
    )
    style.put(page.ax, LEFT, page.height - 0.2, words, style.SMALL, style.MUTED)
    page.say(f"Searches in {count} numbers; {words}")
    for search in searches:
        page.say(
            f"{search.name}: {style.count(len(search.reads), 'read')}, at places "
            f"{style.some(search.reads, 32)}"
        )
    return page.figure
