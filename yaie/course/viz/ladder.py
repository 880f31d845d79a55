"""A ladder of kernels: what each rung reaches of a ceiling, in kept figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style

MARGIN = 0.14
LEFT, BARS, RIGHT = 3.0, 4.4, 2.0
ROW = 0.28


@dataclass(frozen=True)
class Rung:
    """One kernel.

    Attributes:
        name: what it is called.
        share: of the ceiling that it reaches.
        figure: what is written beside the bar, such as "456 TFLOP/s".
        ours: whether it is one of the course's kernels; the others are gray.
    """

    name: str
    share: float
    figure: str
    ours: bool = True


def draw_ladder(
    rungs: Sequence[Rung], ceiling: str, title: str = "", at: style.Place | None = None
) -> Figure:
    """Draw a bar for each rung, from the first to the last, against a ceiling of 1."""
    if not rungs:
        raise ValueError("rungs must have at least one, got none")
    full = max(1.0, *(rung.share for rung in rungs))
    page = style.Page(LEFT + BARS + RIGHT, 0.5 + ROW * len(rungs) + MARGIN, at)
    style.put(page.ax, MARGIN, 0.2, title, style.SMALL, weight="bold")
    edge = LEFT + BARS / full
    style.put(page.ax, edge, 0.36, ceiling, style.SMALL, style.MUTED, "center")
    page.ax.plot([edge] * 2, [0.44, page.height - 0.08], color=style.FAINT, lw=0.8, zorder=0)
    for i, rung in enumerate(rungs):
        y = 0.5 + i * ROW
        middle = y + (ROW - 0.07) / 2
        color = style.BLUE if rung.ours else style.FAINT
        width = max(BARS * rung.share / full, 0.012)
        page.ax.add_artist(Rectangle((LEFT, y), width, ROW - 0.07, facecolor=color))
        name = style.shorten(rung.name, LEFT - 0.2, style.SMALL)
        style.put(page.ax, LEFT - 0.1, middle, name, style.SMALL, ha="right")
        words = f"{rung.figure}, {rung.share:.1%}" if rung.share < 0.1 else (
            f"{rung.figure}, {rung.share:.0%}"
        )  # fmt: skip
        style.put(page.ax, LEFT + max(width, BARS / full) + 0.1, middle, words, style.SMALL)
    each = (f"{rung.name} {rung.share:.1%} ({rung.figure.strip()})" for rung in rungs)
    page.say(f"{title}, shares of {ceiling}: {style.some(each, 12)}")
    return page.figure
