"""Who can compute which operator here, and whom `auto` asks first."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.12
LEFT = 2.1  # inches for the operators' names
ROW, COLUMN = 0.27, 1.9
HEAD = 0.34


def draw_backends(
    table: Sequence, only: Sequence[str] = (), at: style.Place | None = None
) -> Figure:
    """Draw a row for each operator and a column for each back end of `yaie.kernel_info()`.

    Full color: asked first; pale: could compute it; white: cannot here, and why not. Nothing: the
    operator has no such back end.

    Args:
        table: entries with `operator`, `backend`, `how`, `available` and `chosen`.
        only: the operators to draw, in this order; all if empty.
    """
    operators = list(only) or list(dict.fromkeys(entry.operator for entry in table))
    entries = [entry for entry in table if entry.operator in operators]
    if not entries:
        raise ValueError(f"only must name operators of the table, got {list(only)}")
    columns = list(dict.fromkeys(entry.backend for entry in entries))
    width = LEFT + len(columns) * COLUMN + MARGIN
    page = style.Page(width, HEAD + len(operators) * ROW + 0.12, at)
    for i, name in enumerate(columns):
        x = LEFT + (i + 0.5) * COLUMN
        style.put(page.ax, x, HEAD / 2, name, style.BODY, ha="center", weight="bold")
    for row, name in enumerate(operators):
        y = HEAD + (row + 0.5) * ROW
        style.put(page.ax, LEFT - 0.12, y, name, style.BODY, ha="right")
    for entry in entries:
        _cell(page, operators.index(entry.operator), columns.index(entry.backend), entry)
    page.say(f"A table of {style.count(len(operators), 'operator')} and who can compute them here")
    for name in columns:
        own = [entry for entry in entries if entry.backend == name]
        first = [entry.operator for entry in own if entry.chosen]
        more = sum(entry.available and not entry.chosen for entry in own)
        cannot = sum(not entry.available for entry in own)
        page.say(
            f"{name} is asked first for {style.some(first, 4) or 'none'}, could compute {more} "
            f"more, and cannot compute {cannot}"
        )
    return page.figure


def _cell(page: style.Page, row: int, column: int, entry) -> None:
    x, y = LEFT + column * COLUMN, HEAD + row * ROW
    surface = style.PAPER
    if entry.available:
        surface = style.tint(style.BLUE, 0.5 if entry.chosen else 0.12)
    edge = style.BLUE if entry.chosen else style.FAINT
    style.box(page.ax, x, y + 0.02, COLUMN - 0.06, ROW - 0.04, surface, edge, 0.8, 0.03)
    words = style.shorten(entry.how, COLUMN - 0.16, style.SMALL)
    color = style.INK if entry.available else style.MUTED
    style.put(page.ax, x + (COLUMN - 0.06) / 2, y + ROW / 2, words, style.SMALL, color, "center")
