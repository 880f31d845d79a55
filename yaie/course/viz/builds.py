"""Ways from a source to something that can be called: seconds as bars, bytes beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style

MARGIN = 0.14
LEFT, BARS, RIGHT = 4.0, 3.8, 2.0
ROW, HEAD = 0.3, 0.62


@dataclass(frozen=True)
class Build:
    """One way.

    Attributes:
        way: what it is called.
        seconds: that it takes.
        size: bytes of what was built; None if that is no file.
        ours: whether the course builds so; the others are gray.
    """

    way: str
    seconds: float
    size: int | None = None
    ours: bool = False


def draw_builds(builds: Sequence[Build], title: str = "", at: style.Place | None = None) -> Figure:
    """Draw a bar for each way on a logarithmic scale of seconds."""
    if not builds:
        raise ValueError("builds must have at least one, got none")
    seconds = [build.seconds for build in builds]
    low, high = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
    page = style.Page(LEFT + BARS + RIGHT, HEAD + ROW * len(builds) + MARGIN, at)
    style.put(page.ax, MARGIN, 0.2, title, style.SMALL, weight="bold")

    def place(value: float) -> float:
        return LEFT + BARS * (math.log10(value) - low) / max(high - low, 1)

    for power in range(low, high + 1):
        x = place(10.0**power)
        page.ax.plot([x, x], [HEAD - 0.06, page.height - 0.1], color=style.WASH, lw=0.9, zorder=0)
        style.put(page.ax, x, HEAD - 0.17, f"{10.0**power:g} s", style.SMALL, style.MUTED, "center")
    for i, build in enumerate(builds):
        y = HEAD + i * ROW
        middle = y + (ROW - 0.08) / 2
        color = style.BLUE if build.ours else style.FAINT
        width = max(place(build.seconds) - LEFT, 0.02)
        page.ax.add_artist(Rectangle((LEFT, y), width, ROW - 0.08, facecolor=color))
        name = style.shorten(build.way, LEFT - 0.3, style.SMALL)
        style.put(page.ax, LEFT - 0.1, middle, name, style.SMALL, ha="right")
        size = "" if build.size is None else f", {build.size / 1000:,.0f} kB"
        words = f"{build.seconds:.3g} s{size}"
        style.put(page.ax, LEFT + width + 0.1, middle, words, style.SMALL)
    page.say(f"{title}, seconds of each way to build")
    each = (
        f"{build.way} {build.seconds:.3g} s"
        + ("" if build.size is None else f" ({build.size / 1000:,.0f} kB)")
        for build in builds
    )
    page.say(style.some(each, 12))
    return page.figure
