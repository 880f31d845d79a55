"""Numbers that a format has, as strokes on lines of several lengths."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN, HEAD, LINE, PITCH = 0.2, 0.36, 0.5, 1.0


def draw_number_line(
    numbers: Sequence[float], ends: Sequence[float], title: str = "", at: style.Place | None = None
) -> Figure:
    """Draw a line from 0 to each of `ends`, one below the other, with a stroke for each number."""
    if not numbers or not ends:
        raise ValueError("numbers and ends must hold at least one number each")
    page = style.Page(style.WIDTH - 1.0, HEAD + PITCH * len(ends), at)
    style.put(page.ax, MARGIN, 0.17, title, style.BODY, weight="bold")
    within = (f"{sum(number <= end for number in numbers)} up to {end:g}" for end in ends)
    page.say(f"{title}: from {min(numbers):g} to {max(numbers):g}, {style.some(within)}")
    for i, end in enumerate(ends):
        shown = [number for number in numbers if number <= end]
        y = HEAD + PITCH * i
        ax = style.plain(page.axes(MARGIN, y, page.width - 2 * MARGIN, LINE), left=False)
        ax.eventplot(shown, lineoffsets=0, linelengths=1, linewidths=0.9, color=style.BLUE)
        ax.set(xlim=(0, end * 1.01), ylim=(-0.5, 0.5))
    return page.figure
