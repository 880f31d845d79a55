"""The input tensors of a captured step at one replay: which rows are a request's, which padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN, LEFT = 0.14, 0.95
CELL, HEIGHT, ROW = 0.44, 0.3, 0.36


@dataclass(frozen=True)
class Tray:
    """What a replay reads, and what it returns.

    Attributes:
        size: rows of the capture.
        rows: of the batch; those behind are padding.
        inputs: name -> the numbers in the captured tensor, `size` of them.
        written: places of the cache that the replay wrote.
        wanted: those that the batch asked it to write.
    """

    size: int
    rows: int
    inputs: Mapping[str, Sequence[int]]
    written: Sequence[int] = field(default_factory=list)
    wanted: Sequence[int] = field(default_factory=list)


def draw_tray(tray: Tray, at: style.Place | None = None) -> Figure:
    """Draw the rows of a batch in blue, padding in gray, and the places written below."""
    width = max(LEFT + tray.size * CELL + MARGIN, 3.0)
    page = style.Page(width, 0.34 + ROW * len(tray.inputs) + 0.34, at)
    words = f"{style.count(tray.rows, 'row')}, replay of size {tray.size}"
    style.put(page.ax, MARGIN, 0.17, words, style.SMALL, weight="bold")
    for i, (name, numbers) in enumerate(tray.inputs.items()):
        y = 0.34 + i * ROW
        style.put(page.ax, LEFT - 0.08, y + HEIGHT / 2, name, style.SMALL, style.MUTED, "right")
        for j, number in enumerate(numbers):
            color = style.BLUE if j < tray.rows else style.FAINT
            face = style.tint(color, 0.35)
            style.box(page.ax, LEFT + j * CELL, y, CELL - 0.04, HEIGHT, face, color, 0.8)
            x = LEFT + (j + 0.5) * CELL - 0.02
            style.put(page.ax, x, y + HEIGHT / 2, str(number), style.SMALL, ha="center")
    written, stray = list(tray.written), sorted(set(tray.written) - set(tray.wanted))
    words = f"writes {written}" + (f", {stray} of nobody" if stray else "")
    color = style.VERMILION if stray else style.MUTED
    style.put(page.ax, LEFT, page.height - 0.18, words, style.SMALL, color)
    page.say(f"{style.count(tray.rows, 'row')} in a replay of size {tray.size}; {words}")
    each = (f"{name} {style.some(numbers)}" for name, numbers in tray.inputs.items())
    page.say("; ".join(each))
    return page.figure
