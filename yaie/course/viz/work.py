"""What the CPU asked for and what the GPU did, on one axis of time, as a profiler recorded it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style

MARGIN, LEFT = 0.14, 1.5
TITLE, ROW, GAP = 0.34, 0.3, 0.3


@dataclass(frozen=True)
class Work:
    """One piece of work.

    Attributes:
        begins, takes: on the GPU, in microseconds.
        asked: when the CPU asked for it and for how long, in microseconds; None if it was asked
            for together with others.
    """

    begins: float
    takes: float
    asked: tuple[float, float] | None = None


def draw_work(
    ways: Mapping[str, Sequence[Work]], until: float, at: style.Place | None = None
) -> Figure:
    """Draw a row of the CPU and a row of the GPU for each way, all from 0 to `until` µs."""
    if until <= 0:
        raise ValueError(f"until must be above 0, got {until}")
    height = MARGIN + len(ways) * (TITLE + 2 * ROW + GAP) + 0.3
    page = style.Page(style.WIDTH, height, at)
    scale = (page.width - LEFT - 0.3) / until
    for i, (name, works) in enumerate(ways.items()):
        y = MARGIN + i * (TITLE + 2 * ROW + GAP)
        style.put(page.ax, MARGIN, y + 0.14, name, weight="bold")
        shown = [w for w in works if w.begins < until]
        words = f"{len(shown)} kernels; from the first to the last the GPU works {_busy(shown):.0%}"
        style.put(page.ax, page.width - 0.3, y + 0.14, words, style.SMALL, style.MUTED, "right")
        page.say(f"{name}, the first {until:g} µs: {words}")
        y += TITLE
        for row, side in enumerate(("CPU asks", "GPU works")):
            style.put(page.ax, MARGIN, y + row * ROW + 0.12, side, style.SMALL)
            page.ax.add_artist(Rectangle((LEFT, y + row * ROW), until * scale, ROW - 0.06,
                                         facecolor=style.WASH))  # fmt: skip
        asked = dict.fromkeys(w.asked for w in works if w.asked)
        for begin, takes in asked:
            _span(page, LEFT + begin * scale, y, takes * scale, style.SKY, until * scale)
        for work in works:
            x = LEFT + work.begins * scale
            _span(page, x, y + ROW, work.takes * scale, style.GREEN, until * scale)
    y = height - 0.36
    for share in range(5):
        x = LEFT + share / 4 * until * scale
        page.ax.plot([x, x], [MARGIN + TITLE, y], color=style.FAINT, lw=0.7, zorder=3, alpha=0.6)
        words = f"{share / 4 * until:g}" + (" µs" if share == 4 else "")
        style.put(page.ax, x, y + 0.16, words, style.SMALL, style.MUTED, "center")
    return page.figure


def _busy(works: Sequence[Work]) -> float:
    """The share of the time between the first's beginning and the last's end."""
    if not works:
        return 0.0
    busy, end = 0.0, works[0].begins
    for work in sorted(works, key=lambda work: work.begins):  # some run at the same time
        busy += max(work.begins + work.takes - max(end, work.begins), 0.0)
        end = max(end, work.begins + work.takes)
    return busy / (end - min(work.begins for work in works))


def _span(page: style.Page, x: float, y: float, width: float, color: str, whole: float) -> None:
    width = min(width, LEFT + whole - x)
    if width > 0:
        page.ax.add_artist(Rectangle((x, y), max(width, 0.012), ROW - 0.06, facecolor=color,
                                     edgecolor=style.PAPER, linewidth=0.3))  # fmt: skip
