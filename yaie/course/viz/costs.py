"""What each line of a kernel costs: sectors and wavefronts for a request, beside the fewest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.12
ROW = 0.3
HEAD = 0.34
SOURCE_WIDTH = 5.0
BAR_WIDTH = 2.5
MOST_ROWS = 20


def draw_costs(report, at: style.Place | None = None) -> Figure:
    """Draw the table of a report: a row for each access of a line, a bar for what it costs.

    Args:
        report: a `Report` of `yaie.emulator`; anything with `accesses` and `source`.
    """
    accesses = report.accesses[:MOST_ROWS]
    if not accesses:
        raise ValueError("report must have accesses to memory, got none")
    lines = report.source.splitlines()
    longest = max(max(a.per_request, a.ideal) for a in accesses)
    scale = BAR_WIDTH / max(longest, 4)
    page = style.Page(style.WIDTH, HEAD + ROW * len(accesses) + 0.42, at)
    _head(page)
    left = MARGIN + SOURCE_WIDTH + 1.35
    before = None
    for index, access in enumerate(accesses):
        y = HEAD + ROW * index
        middle = y + ROW / 2
        if access.line != before:
            text = style.shorten(statement(lines, access.line), SOURCE_WIDTH - 0.45, style.SMALL)
            style.put(page.ax, MARGIN + 0.25, middle, str(access.line), style.SMALL, style.MUTED,
                      "right")  # fmt: skip
            style.put(page.ax, MARGIN + 0.4, middle, text, style.SMALL)
            page.ax.plot([MARGIN, style.WIDTH - MARGIN], [y, y], color=style.FAINT, linewidth=0.6)
        before = access.line
        what = f"{access.memory} {access.kind}"
        style.put(page.ax, MARGIN + SOURCE_WIDTH + 0.05, middle, what, style.SMALL, style.MUTED)
        good = access.units == access.ideal_units
        color = style.BLUE if good else style.VERMILION
        width = max(access.per_request * scale, 0.02)
        style.box(page.ax, left, y + 0.06, width, ROW - 0.12, color, radius=0.02)
        ideal = left + access.ideal * scale
        page.ax.plot([ideal, ideal], [y + 0.02, y + ROW - 0.02], color=style.INK, linewidth=1.2)
        words = style.count(round(access.per_request, 2), access.unit[:-1]).replace(".0 ", " ")
        style.put(page.ax, left + max(width, access.ideal * scale) + 0.08, middle, words,
                  style.SMALL, style.INK if good else style.VERMILION)  # fmt: skip
    hidden = len(report.accesses) - len(accesses)
    note = "black: the fewest that could carry the bytes" + (f"; {hidden} more" if hidden else "")
    style.put(page.ax, left, page.height - 0.16, note, style.SMALL, style.MUTED)
    dear = (
        f"line {access.line}, {access.memory} {access.kind}, {style.digits(access.per_request)} "
        f"{access.unit} where {style.digits(access.ideal)} would do"
        for access in accesses
        if access.units != access.ideal_units
    )
    more = f" and {hidden} more" if hidden else ""
    page.say(
        f"What a request of a warp costs, for each of {len(accesses)} accesses{more}; dearer than "
        f"they must be: {style.some(dear) or 'none'}"
    )
    return page.figure


def statement(lines: Sequence[str], number: int) -> str:
    """The code from a line on, counted from 1, to where its statement ends.

    An ellipsis stands before it if the statement began earlier.
    """
    code = [line.partition("//")[0].strip() for line in lines]
    before = next(filter(None, reversed(code[: number - 1])), "")
    own = list(takewhile(goes_on, code[number - 1 :]))
    text = " ".join([*own, *code[number - 1 + len(own) :][:1]])
    return f"… {text}" if goes_on(before) else text


def goes_on(line: str) -> bool:
    """Whether a line of C++ without its comment ends within a statement."""
    head = re.match(r"(for|if|while|else)\b", line) and line.count("(") == line.count(")")
    return not (head or line.endswith((";", "{", "}", ":")) or line.startswith("#") or not line)


def _head(page: style.Page) -> None:
    style.put(page.ax, MARGIN + 0.4, HEAD / 2, "line", style.SMALL, style.MUTED)
    words = "a request of a warp costs"
    style.put(page.ax, MARGIN + SOURCE_WIDTH + 1.35, HEAD / 2, words, style.SMALL, style.MUTED)
