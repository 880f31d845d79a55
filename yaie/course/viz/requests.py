"""Requests on a line of time: when each was due, and when its tokens came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style

LEFT, RIGHT, HEAD, LANE, FOOT = 1.5, 0.35, 0.4, 0.34, 0.45


def draw_requests(
    traces: Mapping[str, Any], unit: str = "s", at: style.Place | None = None
) -> Figure:
    """Draw a lane for each request: its time to first token as a bar, its tokens as strokes.

    Args:
        traces: name -> anything with `due` and `tokens`, on one clock.
        unit: of that clock.
    """
    if not traces:
        raise ValueError("traces must hold at least one trace, got none")
    start = min(trace.due for trace in traces.values())
    end = max(trace.tokens[-1] for trace in traces.values())
    page = style.Page(style.WIDTH, HEAD + LANE * len(traces) + FOOT, at)
    scale = (style.WIDTH - LEFT - RIGHT) / (end - start or 1.0)

    def place(time: float) -> float:
        return LEFT + (time - start) * scale

    words = "pale: waiting for the first token; strokes: tokens"
    style.put(page.ax, LEFT, 0.17, words, style.SMALL, style.MUTED)
    indices = style.name_colors(traces)
    for lane, (name, trace) in enumerate(traces.items()):
        y, color = HEAD + lane * LANE, style.series_color(indices[name])
        style.put(page.ax, LEFT - 0.12, y + LANE / 2, name, style.SMALL, ha="right")
        wait = place(trace.tokens[0]) - place(trace.due)
        style.box(page.ax, place(trace.due), y + 0.06, max(wait, 0.01), LANE - 0.12,
                  style.tint(color, 0.3), radius=0.0)  # fmt: skip
        ends = [place(trace.tokens[0]), place(trace.tokens[-1])]
        page.ax.plot(ends, [y + LANE / 2] * 2, color=style.tint(color, 0.5), lw=1.0)
        for time in trace.tokens:
            page.ax.plot([place(time)] * 2, [y + 0.05, y + LANE - 0.05], color=color, lw=1.4)
    _scale(page, start, end, place, HEAD + LANE * len(traces), unit)
    for name, trace in traces.items():
        due, first, last = (t - start for t in (trace.due, trace.tokens[0], trace.tokens[-1]))
        page.say(
            f"{name}: due at {style.digits(due)} {unit}, first token at {style.digits(first)}, "
            f"the last of {len(trace.tokens)} at {style.digits(last)}"
        )
    return page.figure


def draw_arrivals(
    arrivals: Mapping[str, Sequence[float]], unit: str = "s", at: style.Place | None = None
) -> Figure:
    """Draw a lane for each way to arrive, a stroke for each arrival.

    Args:
        arrivals: name -> ascending times from 0.
    """
    if not any(map(len, arrivals.values())):
        raise ValueError("arrivals must hold at least one time, got none")
    end = max(times[-1] for times in arrivals.values() if len(times))
    page = style.Page(style.WIDTH, HEAD + 1.3 * LANE * len(arrivals) + FOOT, at)
    scale = (style.WIDTH - LEFT - RIGHT) / end

    def place(time: float) -> float:
        return LEFT + time * scale

    style.put(page.ax, LEFT, 0.17, "each stroke is a request", style.SMALL, style.MUTED)
    for lane, (name, times) in enumerate(arrivals.items()):
        y, color = HEAD + 1.3 * lane * LANE, style.series_color(lane)
        style.put(page.ax, LEFT - 0.12, y + LANE / 2, name, style.SMALL, ha="right")
        for time in times:
            page.ax.plot([place(time)] * 2, [y, y + LANE], color=color, lw=1.2)
    _scale(page, 0.0, end, place, HEAD + 1.3 * LANE * len(arrivals), unit)
    each = (
        f"{name}: {len(times)}, the last at {style.digits(times[-1])} {unit}"
        for name, times in arrivals.items()
        if len(times)
    )
    page.say(f"Requests that arrive: {'; '.join(each)}")
    return page.figure


def _scale(page: style.Page, start: float, end: float, place, y: float, unit: str) -> None:
    span = end - start
    step = next(s for s in _steps() if span / s <= 11)
    page.ax.plot([place(start), place(end)], [y + 0.06] * 2, color=style.FAINT, lw=0.8)
    for number in range(int(span / step + 1e-6) + 1):
        x = place(start + number * step)
        page.ax.plot([x, x], [y + 0.06, y + 0.1], color=style.FAINT, lw=0.8)
        words = f"{number * step:g} {unit}"
        style.put(page.ax, x, y + 0.22, words, style.SMALL, style.MUTED, "center")


def _steps():
    size = 1e-6
    while True:
        yield from (size, 2 * size, 5 * size)
        size *= 10
