"""Lanes along time: warps, thread blocks, launches, GPU work and requests."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page

MARGIN = 0.14


def _scale(grid: Grid, y: float, end: float, unit: str = "", most: int = 11) -> None:
    """Write round numbers from 0 to `end` below the lanes."""
    for time in style.ticks(end, most):
        grid.ax.note(grid.x(time), y, f"{time:,g} {unit}".strip(), "center")


# ---------------------------------------------------------------------------------- latency


@dataclass(frozen=True)
class Span:
    """What a warp does from cycle `start` to cycle `end`: "load" (it waits) or "compute"."""

    warp: int
    kind: str
    start: int
    end: int


def draw_latency(spans: Sequence[Span], num_cycles: int | None = None) -> Figure:
    """Draw a lane for each warp, and below them when the unit that they share is busy.

    Args:
        num_cycles: how many cycles are as wide as the page; by default those there are.
    """
    style.check_some(spans, "spans")
    end = max(span.end for span in spans)
    num_cycles = num_cycles or end
    warps = max(span.warp for span in spans) + 1
    left, lane = 0.95, 0.24
    page = Page(style.WIDTH, 0.35 + lane * (warps + 1) + 0.45)
    grid = page.grid(left, 0.38, (style.WIDTH - left - 0.2) / num_cycles, lane, gap_below=0.06)
    for warp in range(warps):
        grid.name(warp, f"warp {warp}", style.BODY)
    grid.name(warps + 0.25, "the unit", style.BODY, weight="bold")
    busy = 0
    for span in spans:
        start, stop = min(span.start, num_cycles), min(span.end, num_cycles)
        color = style.series_color(span.warp)
        if span.kind == "compute" and start < stop:
            busy += stop - start
            for row in (span.warp, warps + 0.25):
                grid.bar(row, start, stop, color)
        elif start < stop:
            y = [grid.middle(span.warp)] * 2
            page.plot([grid.x(start), grid.x(stop)], y, color=style.tint(color, 0.5), lw=1.2)
    shown = min(end, num_cycles)
    text = f"the unit works in {busy} of {shown} cycles, {busy / shown:.0%}"
    page.put(left, 0.17, text, weight="bold")
    _scale(grid, page.height - 0.2, num_cycles)
    page.say(f"{style.count(warps, 'warp')} take turns, a load each, then arithmetic: {text}")
    return page.figure


# ---------------------------------------------------------------------------------- timeline


@dataclass(frozen=True)
class Timeline:
    """A launch.

    Attributes:
        pieces: (sequence, keys) of each thread block, in the order in which they are started.
        processors: how many run at the same time.
        longest: keys that the page has room for, so that several can be compared.
        equal: whether the pieces are laid in one line, of which each SM gets the same
            share, wherever that cuts them.
    """

    pieces: tuple[tuple[int, int], ...]
    processors: int
    longest: int
    equal: bool = False


def started(state: Timeline) -> list[tuple[int, int, int, int]]:
    """(processor, sequence, begin, end) of each piece: the first free processor takes it."""
    if state.equal:
        return list(_shared_out(state))
    free = [(0, processor) for processor in range(state.processors)]
    found = []
    for sequence, keys in state.pieces:
        begin, processor = heapq.heappop(free)
        found.append((processor, sequence, begin, begin + keys))
        heapq.heappush(free, (begin + keys, processor))
    return found


def _shared_out(state: Timeline) -> Iterator[tuple[int, int, int, int]]:
    total = sum(keys for _, keys in state.pieces)
    cuts = [total * n // state.processors for n in range(state.processors + 1)]
    place = 0
    for sequence, keys in state.pieces:
        for processor, (low, high) in enumerate(pairwise(cuts)):
            begin, end = max(low, place), min(high, place + keys)
            if begin < end:
                yield processor, sequence, begin - low, end - low
        place += keys


def finished(state: Timeline) -> int:
    """When the last thread block has ended, in keys."""
    return max((end for *_, end in started(state)), default=0)


def draw_timeline(state: Timeline) -> Figure:
    """Draw a row for each SM and a bar for each thread block; a color is a sequence."""
    width, top = 4.7, 0.36
    page = Page(width, top + 0.17 * state.processors + 0.3)
    grid = page.grid(MARGIN, top, (width - 2 * MARGIN) / state.longest, 0.17, 0.015, 0.04)
    for processor in range(state.processors):
        grid.bar(processor, 0, state.longest, style.WASH)
    for processor, sequence, begin, end in started(state):
        grid.bar(processor, begin, end, style.many_colors(sequence))
    last, work = finished(state), sum(keys for _, keys in state.pieces)
    busy = work / (last * state.processors) if last else 0.0
    blocks = state.processors if state.equal else len(state.pieces)
    words = f"{style.count(blocks, 'thread block')}, done after {last:,} keys"
    page.put(MARGIN, 0.2, words, weight="bold")
    page.plot([grid.x(last)] * 2, [top - 0.05, grid.y(state.processors)], lw=1.0, color=style.INK)
    note = f"{state.processors} SMs, busy {busy:.0%} of that time; a color is a sequence"
    page.note(MARGIN, page.height - 0.13, note)
    page.say(f"{words}; {note}")
    return page.figure


# ---------------------------------------------------------------------------------- launches


@dataclass(frozen=True)
class Call:
    """What the CPU does next.

    Attributes:
        name: what is written on it.
        takes: how long it keeps the CPU; for a call that waits, this is at least so long.
        runs: how long the GPU will work on it; 0 if it is no launch.
        waits: whether it returns only when all earlier work is done.
        fails: whether the GPU stops in it: nothing after it runs.
    """

    name: str
    takes: float = 1.0
    runs: float = 0.0
    waits: bool = False
    fails: bool = False


def draw_launches(calls: Sequence[Call]) -> Figure:
    """Draw the calls of the CPU above, the kernels of the GPU below, and what joins them.

    After a kernel that fails the GPU does nothing more; the first call that waits reports it.
    """
    now, free = 0.0, 0.0
    host, device = [], []
    failed = False
    for call in calls:
        begin = now
        now += call.takes
        if call.runs and not failed:
            start = max(now, free)
            free = start + call.runs
            device.append((call, start, now))
            failed = call.fails
        if call.waits:
            now = max(now, free)
        host.append((call, begin, now, failed and call.waits))
    left, unit = 1.0, 0.62  # inches of one unit of time, which has no name: nothing is measured
    page = Page(max(left + max(now, free) * unit + MARGIN, 6.0), 1.77)
    grid = page.grid(left, 0.35, unit, 0.8, 0.04, 0.5)

    def bar(row: int, begin: float, end: float, name: str, color: str) -> None:
        label = style.shorten(name, (end - begin) * unit - 0.1, style.SMALL)
        face = style.tint(color, 0.45)
        grid.area((row, row + 1), (begin, end), face, label, edge=color, radius=0.03)

    for row, name in enumerate(("CPU", "GPU")):
        page.put(MARGIN, grid.middle(row), name, weight="bold")
    for call, begin, end, raises in host:
        color = style.VERMILION if raises else style.SKY if call.waits else style.BLUE
        bar(0, begin, end, call.name, color)
    for call, start, asked in device:
        color = style.VERMILION if call.fails else style.GREEN
        bar(1, start, start + call.runs, call.name.partition("<")[0], color)
        xs, ys = [grid.x(asked) - 0.04, grid.x(start) + 0.06], [0.65, grid.y(1)]
        page.plot(xs, ys, color=style.FAINT, lw=1.2, zorder=0)
    page.note(page.width - MARGIN, page.height - 0.14, "time, not to scale →", "right")
    runs = [call.name.partition("<")[0] for call, *_ in device]
    page.say(f"The CPU calls {style.some((call.name for call in calls), 12)}")
    page.say(f"Later, one after the other, the GPU runs {style.some(runs, 12) or 'nothing'}")
    if failed:
        raises = [call.name for call, _, _, raises in host if raises]
        page.say(f"It fails in the last of these; first reported by {(raises or ['none'])[0]}")
    return page.figure


# ---------------------------------------------------------------------------------- work


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
    ways: Mapping[str, Sequence[Work]],
    until: float,
    gaps: Mapping[str, Sequence[tuple[float, float, str]]] | None = None,
) -> Figure:
    """Draw a row of the CPU and a row of the GPU for each way, all from 0 to `until` µs.

    Args:
        gaps: way -> when the GPU does nothing, from and to, and whether it waits for the "CPU" or
            the "GPU". The upper row then shows these instead of what the CPU asks for.
    """
    if until <= 0:
        raise ValueError(f"until must be above 0, got {until}")
    left, pitch, row = 1.5, 0.94, 0.3
    page = Page(style.WIDTH, MARGIN + len(ways) * pitch + 0.3)
    scale = (page.width - left - 0.3) / until
    for i, (name, works) in enumerate(ways.items()):
        y = MARGIN + i * pitch
        shown = [w for w in works if w.begins < until]
        words = f"{len(shown)} kernels; from the first to the last the GPU works {_busy(shown):.0%}"
        page.put(MARGIN, y + 0.14, name, weight="bold")
        page.note(page.width - 0.3, y + 0.14, words, "right")
        page.say(f"{name}, the first {until:g} µs: {words}")
        grid = page.grid(left, y + 0.34, scale, row, gap_below=0.06)
        asked = dict.fromkeys(w.asked for w in works if w.asked)
        upper = [("CPU asks", [(begin, takes, style.SKY) for begin, takes in asked])]
        if gaps is not None:
            upper = [("waits for", _gaps(page, gaps[name], until))]
            x = 2.6
            for who, color in WAITS.items():
                page.box(x, y + 0.08, 0.12, 0.12, color, radius=0.02)
                page.note(x + 0.17, y + 0.14, f"waits for the {who}")
                x += 1.3
        ran = [(w.begins, w.takes, style.GREEN) for w in works]
        for lane, (side, spans) in enumerate([*upper, ("GPU works", ran)]):
            page.put(MARGIN, grid.middle(lane), side, style.SMALL)
            grid.bar(lane, 0, until, style.WASH)
            for begin, takes, color in spans:
                if begin < until:
                    end = min(begin + takes, until)
                    grid.bar(lane, begin, end, color, edge=style.PAPER, line=0.3)
        for time in style.ticks(until, 8):
            ends = [y + 0.34, y + pitch]
            page.plot([grid.x(time)] * 2, ends, color=style.FAINT, lw=0.7, alpha=0.6, zorder=3)
    bottom = page.height - 0.36
    _scale(page.grid(left, MARGIN, scale, row), bottom + 0.16, until, "µs", 8)
    return page.figure


WAITS = {"CPU": style.VERMILION, "GPU": style.BLUE}


def _gaps(
    page: Page, gaps: Sequence[tuple[float, float, str]], until: float
) -> list[tuple[float, float, str]]:
    """The gaps as spans with a color each, and what the page says of them."""
    shown = [(begins, min(ends, until), who) for begins, ends, who in gaps if begins < until]
    for who in WAITS:
        lengths = [ends - begins for begins, ends, waits_for in shown if waits_for == who]
        page.say(f"It waits for the {who} {len(lengths)} times, {sum(lengths):.0f} µs in all")
    return [(begins, ends - begins, WAITS[who]) for begins, ends, who in shown]


def _busy(works: Sequence[Work]) -> float:
    """The share of the time between the first's beginning and the last's end."""
    if not works:
        return 0.0
    busy, end = 0.0, works[0].begins
    for work in sorted(works, key=lambda work: work.begins):  # some run at the same time
        busy += max(work.begins + work.takes - max(end, work.begins), 0.0)
        end = max(end, work.begins + work.takes)
    return busy / (end - min(work.begins for work in works))


# ---------------------------------------------------------------------------------- requests


def _clock(names: Iterable[str], end: float, lane: float, words: str) -> tuple[Page, Grid]:
    """A page with a lane for each name and a scale from 0 to `end` seconds below them."""
    names, left = list(names), 1.5
    page = Page(style.WIDTH, 0.4 + lane * len(names) + 0.45)
    grid = page.grid(left, 0.4, (style.WIDTH - left - 0.35) / (end or 1.0), lane)
    page.note(left, 0.17, words)
    for row, name in enumerate(names):
        grid.name(row, name)
    bottom = grid.y(len(names)) + 0.06
    page.plot([left, grid.x(end)], [bottom] * 2, color=style.FAINT, lw=0.8)
    _scale(grid, bottom + 0.16, end or 1.0, "s")
    return page, grid


def _strokes(grid: Grid, row: int, times: Iterable[float], color: str) -> None:
    ends = [grid.y(row) + 0.05, grid.y(row + 1) - 0.05]
    for time in times:
        grid.ax.plot([grid.x(time)] * 2, ends, color=color, lw=1.3)


def draw_requests(traces: Mapping[str, Any]) -> Figure:
    """Draw a lane for each request: its time to first token as a bar, its tokens as strokes.

    Args:
        traces: name -> anything with `due` and `tokens`, in seconds on one clock.
    """
    style.check_some(traces, "traces")
    start = min(trace.due for trace in traces.values())
    end = max(trace.tokens[-1] for trace in traces.values()) - start
    words = "pale: waiting for the first token; strokes: tokens"
    page, grid = _clock(traces, end, 0.34, words)
    indices = style.name_colors(traces)
    for row, (name, trace) in enumerate(traces.items()):
        color = style.series_color(indices[name])
        due, tokens = trace.due - start, [time - start for time in trace.tokens]
        grid.area((row + 0.18, row + 0.82), (due, tokens[0]), style.tint(color, 0.3))
        xs, ys = [grid.x(tokens[0]), grid.x(tokens[-1])], [grid.middle(row)] * 2
        page.plot(xs, ys, color=style.tint(color, 0.5), lw=1.0)
        _strokes(grid, row, tokens, color)
        page.say(
            f"{name}: due at {style.digits(due)} s, first token at "
            f"{style.digits(tokens[0])}, the last of {len(tokens)} at {style.digits(tokens[-1])}"
        )
    return page.figure


def draw_arrivals(arrivals: Mapping[str, Sequence[float]]) -> Figure:
    """Draw a lane for each way to arrive, a stroke for each arrival.

    Args:
        arrivals: name -> ascending seconds from 0.
    """
    found = {name: times for name, times in arrivals.items() if len(times)}
    style.check_some(found, "arrivals")
    end = max(times[-1] for times in found.values())
    page, grid = _clock(arrivals, end, 0.44, "each stroke is a request")
    for row, times in enumerate(arrivals.values()):
        _strokes(grid, row, times, style.series_color(row))
    each = (
        f"{name}: {len(times)}, the last at {style.digits(times[-1])} s"
        for name, times in found.items()
    )
    page.say(f"Requests that arrive: {'; '.join(each)}")
    return page.figure
