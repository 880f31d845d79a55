"""How busy the parts of a GPU were while a kernel ran, as a profiler counted: a table of shades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN, LEFT = 0.14, 2.2
ROW, HEAD = 0.3, 0.66
WORDS = 1.9  # inches of what is said at the end of a row


def draw_profile(
    rows: Mapping[str, Mapping[str, float]],
    columns: Mapping[str, str],
    said: Sequence[str] = (),
    apart: Sequence[str] = (),
    title: str = "",
    at: style.Place | None = None,
) -> Figure:
    """Draw a row for each kernel and a column for each part, in percent of what it can do.

    Args:
        rows: kernel -> key -> percent.
        columns: key -> heading.
        said: for each row, what is concluded.
        apart: keys of columns that are no part of a GPU; they are blue.
    """
    if said and len(said) != len(rows):
        raise ValueError(f"said must have one text for each of {len(rows)} rows, got {len(said)}")
    end = WORDS if said else 0.3
    page = style.Page(style.WIDTH, HEAD + ROW * len(rows) + MARGIN, at)
    cell = (page.width - LEFT - end) / len(columns)
    style.put(page.ax, MARGIN, 0.2, title, style.SMALL, weight="bold")
    for j, heading in enumerate(columns.values()):
        x = LEFT + (j + 0.5) * cell
        style.put(page.ax, x, HEAD - 0.16, heading, style.SMALL, style.MUTED, "center")
    for i, (kernel, values) in enumerate(rows.items()):
        y = HEAD + i * ROW
        middle = y + (ROW - 0.04) / 2
        name = style.shorten(kernel, LEFT - 0.3, style.SMALL)
        style.put(page.ax, LEFT - 0.1, middle, name, style.SMALL, ha="right")
        for j, key in enumerate(columns):
            share = min(max(values[key] / 100, 0.0), 1.0)
            x = LEFT + j * cell
            color = style.BLUE if key in apart else style.VERMILION
            face = style.tint(color, 0.04 + 0.8 * share**1.5)
            style.box(page.ax, x + 0.02, y, cell - 0.04, ROW - 0.04, face, radius=0.03)
            ink = style.PAPER if share > 0.85 else style.INK
            style.put(page.ax, x + cell / 2, middle, f"{values[key]:.0f} %", style.SMALL, ink,
                      "center")  # fmt: skip
        if said:
            style.put(page.ax, page.width - end + 0.12, middle, said[i], style.SMALL)
    page.say(title)
    for i, (kernel, values) in enumerate(rows.items()):
        each = (f"{heading} {values[key]:.0f} %" for key, heading in columns.items())
        page.say(f"{kernel}: {style.some(each)}{f'; {said[i]}' if said else ''}")
    return page.figure
