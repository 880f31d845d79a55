"""Lanes along time: warps, thread blocks, launches and requests."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

# ---------------------------------------------------------------------------------- latency

LEFT, HEAD, LANE, RIGHT = 0.95, 0.35, 0.24, 0.2  # inches


@dataclass(frozen=True)
class Span:
    """What a warp does from cycle `start` to cycle `end`: "load" (it waits) or "compute"."""

    warp: int
    kind: str
    start: int
    end: int


def draw_latency(
    spans: Sequence[Span], num_cycles: int | None = None, at: Place | None = None
) -> Figure:
    """Draw a lane for each warp, and below them when the unit that they share is busy.

    Args:
        num_cycles: how many cycles are as wide as the page; by default those there are.
    """
    if not spans:
        raise ValueError("spans must hold at least one span, got none")
    end = max(span.end for span in spans)
    num_cycles = num_cycles or end
    warps = max(span.warp for span in spans) + 1
    lanes = [f"warp {warp}" for warp in range(warps)]
    page = Page(style.WIDTH, HEAD + LANE * (warps + 1) + 0.45, at)
    unit = (style.WIDTH - LEFT - RIGHT) / num_cycles
    for lane, name in enumerate([*lanes, "the unit"]):
        spot = LEFT - 0.1, HEAD + (lane + 0.5) * LANE
        page.put(*spot, name, ha="right", weight="bold" if lane == warps else "normal")
    busy = 0
    for span in spans:
        if span.start >= num_cycles:
            continue
        x, length = LEFT + span.start * unit, (min(span.end, num_cycles) - span.start) * unit
        color = style.series_color(span.warp)
        if span.kind == "compute":
            busy += min(span.end, num_cycles) - span.start
            for lane in (span.warp, warps):
                y = HEAD + lane * LANE + 0.03 + 0.06 * (lane == warps)
                page.box(x, y, length, LANE - 0.06, face=color, radius=0.0)
        else:
            y = HEAD + (span.warp + 0.5) * LANE
            page.plot([x, x + length], [y, y], color=style.tint(color, 0.5), lw=1.2)
    shown = min(end, num_cycles)
    text = f"the unit works in {busy} of {shown} cycles, {busy / shown:.0%}"
    page.put(LEFT, 0.17, text, weight="bold")
    bottom = HEAD + LANE * (warps + 1) + 0.1
    for cycle in range(0, num_cycles + 1, _step(num_cycles)):
        x = LEFT + cycle * unit
        page.note(x, bottom + 0.15, str(cycle), "center")
    page.say(f"{style.count(warps, 'warp')} take turns, a load each, then arithmetic: {text}")
    return page.figure


def _step(num_cycles: int) -> int:
    """Between the numbers on the scale, so that there are about ten."""
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        if num_cycles / step <= 12:
            return step
    return num_cycles


# ---------------------------------------------------------------------------------- timeline

MARGIN = 0.14
TIMELINE_WIDTH = 4.7
TOP = 0.36
ROW = 0.17


@dataclass(frozen=True)
class Timeline:
    """A launch.

    Attributes:
        pieces: (sequence, keys) of each thread block, in the order in which they are started.
        processors: how many run at the same time.
        longest: keys that the page has room for, so that several can be compared.
        equal: whether the pieces are laid in one line, of which each multiprocessor gets the same
            share, wherever that cuts them.
    """

    pieces: tuple[tuple[int, int], ...]
    processors: int
    longest: int
    equal: bool = False


def started(state: Timeline) -> list[tuple[int, int, int, int]]:
    """(processor, sequence, begin, end) of each piece: the first that is free takes it."""
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


def draw_timeline(state: Timeline, at: Place | None = None) -> Figure:
    """Draw a row for each multiprocessor and a bar for each thread block; a color is a sequence."""
    page = Page(TIMELINE_WIDTH, TOP + ROW * state.processors + 0.3, at)
    ax, unit = page.ax, (TIMELINE_WIDTH - 2 * MARGIN) / state.longest
    for processor in range(state.processors):
        y = TOP + processor * ROW
        ax.rect(MARGIN, y, TIMELINE_WIDTH - 2 * MARGIN, ROW - 0.04, style.WASH)
    for processor, sequence, begin, end in started(state):
        paler = sequence // len(style.SERIES) % 2
        color = style.tint(style.series_color(sequence), 0.45 if paler else 0.85)
        corner = MARGIN + begin * unit, TOP + processor * ROW
        ax.rect(*corner, max((end - begin) * unit - 0.015, 0.01), ROW - 0.04, color)
    last, work = finished(state), sum(keys for _, keys in state.pieces)
    busy = work / (last * state.processors) if last else 0.0
    blocks = state.processors if state.equal else len(state.pieces)
    words = f"{style.count(blocks, 'thread block')}, done after {last:,} keys"
    ax.put(MARGIN, 0.2, words, weight="bold")
    ax.plot(
        [MARGIN + last * unit] * 2,
        [TOP - 0.05, TOP + ROW * state.processors],
        lw=1.0,
        color=style.INK,
    )
    note = (
        f"{state.processors} multiprocessors, busy {busy:.0%} of that time; a color is a sequence"
    )
    ax.note(MARGIN, page.height - 0.13, note)
    page.say(f"{words}; {note}")
    return page.figure


# ---------------------------------------------------------------------------------- launches

LAUNCHES_MARGIN = 0.12
LAUNCHES_LEFT = 1.0
UNIT = 0.62  # inches of one unit of time, which has no name: nothing here is measured
HEIGHT = 0.3
LAUNCHES_TOP, BOTTOM = 0.35, 1.15  # of the CPU's row and of the GPU's


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


def draw_launches(calls: Sequence[Call], at: Place | None = None) -> Figure:
    """Draw the calls of the CPU above, the kernels of the GPU below, and what joins them.

    From a kernel that fails on, the GPU does nothing, and the first call that waits is told.
    """
    now, free = 0.0, 0.0
    host, device = [], []
    failed = False
    for call in calls:
        begin = now
        now += call.takes
        if call.runs and not failed:
            start = max(begin + call.takes, free)
            free = start + call.runs
            device.append((call, start, begin + call.takes))
            failed = call.fails
        if call.waits:
            now = max(now, free)
        host.append((call, begin, now, failed and call.waits))
    width = LAUNCHES_LEFT + max(now, free) * UNIT + LAUNCHES_MARGIN
    page = Page(max(width, 6.0), BOTTOM + HEIGHT + 0.32, at)
    for y, name in ((LAUNCHES_TOP, "CPU"), (BOTTOM, "GPU")):
        page.put(LAUNCHES_MARGIN, y + HEIGHT / 2, name, weight="bold")
    for call, begin, end, told in host:
        color = style.VERMILION if told else style.SKY if call.waits else style.BLUE
        _bar(page, LAUNCHES_TOP, begin, end, call.name, color)
    for call, start, asked in device:
        color = style.VERMILION if call.fails else style.GREEN
        _bar(page, BOTTOM, start, start + call.runs, call.name.partition("<")[0], color)
        page.plot(
            [LAUNCHES_LEFT + asked * UNIT - 0.04, LAUNCHES_LEFT + start * UNIT + 0.06],
            [LAUNCHES_TOP + HEIGHT, BOTTOM],
            color=style.FAINT,
            lw=1.2,
            zorder=0,
        )
    page.note(page.width - LAUNCHES_MARGIN, BOTTOM + HEIGHT + 0.18, "time, not to scale →", "right")
    calls = [call.name for call, *_ in host]
    runs = [call.name.partition("<")[0] for call, *_ in device]
    page.say(f"The CPU calls {style.some(calls, 12)}")
    page.say(f"Later, one after the other, the GPU runs {style.some(runs, 12) or 'nothing'}")
    if failed:
        told = [call.name for call, _, _, told in host if told]
        page.say(f"It fails in the last of these; told first: {style.some(told[:1]) or 'nobody'}")
    return page.figure


def _bar(page: Page, y: float, begin: float, end: float, name: str, color: str) -> None:
    x, width = LAUNCHES_LEFT + begin * UNIT, (end - begin) * UNIT - 0.04
    label = style.shorten(name, width - 0.06, style.SMALL)
    page.cell(x, y, width, HEIGHT, label, style.tint(color, 0.45), color, 0.8, 0.03)


# ---------------------------------------------------------------------------------- requests

REQUESTS_LEFT, REQUESTS_RIGHT, REQUESTS_HEAD, REQUESTS_LANE, FOOT = 1.5, 0.35, 0.4, 0.34, 0.45


def draw_requests(traces: Mapping[str, Any], unit: str = "s", at: Place | None = None) -> Figure:
    """Draw a lane for each request: its time to first token as a bar, its tokens as strokes.

    Args:
        traces: name -> anything with `due` and `tokens`, on one clock.
        unit: of that clock.
    """
    if not traces:
        raise ValueError("traces must hold at least one trace, got none")
    start = min(trace.due for trace in traces.values())
    end = max(trace.tokens[-1] for trace in traces.values())
    page = Page(style.WIDTH, REQUESTS_HEAD + REQUESTS_LANE * len(traces) + FOOT, at)
    scale = (style.WIDTH - REQUESTS_LEFT - REQUESTS_RIGHT) / (end - start or 1.0)

    def place(time: float) -> float:
        return REQUESTS_LEFT + (time - start) * scale

    words = "pale: waiting for the first token; strokes: tokens"
    page.note(REQUESTS_LEFT, 0.17, words)
    indices = style.name_colors(traces)
    for lane, (name, trace) in enumerate(traces.items()):
        y, color = REQUESTS_HEAD + lane * REQUESTS_LANE, style.series_color(indices[name])
        page.put(REQUESTS_LEFT - 0.12, y + REQUESTS_LANE / 2, name, style.SMALL, ha="right")
        wait = place(trace.tokens[0]) - place(trace.due)
        corner = place(trace.due), y + 0.06
        page.box(*corner, max(wait, 0.01), REQUESTS_LANE - 0.12, style.tint(color, 0.3), radius=0.0)
        ends = [place(trace.tokens[0]), place(trace.tokens[-1])]
        page.plot(ends, [y + REQUESTS_LANE / 2] * 2, color=style.tint(color, 0.5), lw=1.0)
        for time in trace.tokens:
            page.plot([place(time)] * 2, [y + 0.05, y + REQUESTS_LANE - 0.05], color=color, lw=1.4)
    _scale(page, start, end, place, REQUESTS_HEAD + REQUESTS_LANE * len(traces), unit)
    for name, trace in traces.items():
        due, first, last = (t - start for t in (trace.due, trace.tokens[0], trace.tokens[-1]))
        page.say(
            f"{name}: due at {style.digits(due)} {unit}, first token at {style.digits(first)}, "
            f"the last of {len(trace.tokens)} at {style.digits(last)}"
        )
    return page.figure


def draw_arrivals(
    arrivals: Mapping[str, Sequence[float]], unit: str = "s", at: Place | None = None
) -> Figure:
    """Draw a lane for each way to arrive, a stroke for each arrival.

    Args:
        arrivals: name -> ascending times from 0.
    """
    if not any(map(len, arrivals.values())):
        raise ValueError("arrivals must hold at least one time, got none")
    end = max(times[-1] for times in arrivals.values() if len(times))
    page = Page(style.WIDTH, REQUESTS_HEAD + 1.3 * REQUESTS_LANE * len(arrivals) + FOOT, at)
    scale = (style.WIDTH - REQUESTS_LEFT - REQUESTS_RIGHT) / end

    def place(time: float) -> float:
        return REQUESTS_LEFT + time * scale

    page.note(REQUESTS_LEFT, 0.17, "each stroke is a request")
    for lane, (name, times) in enumerate(arrivals.items()):
        y, color = REQUESTS_HEAD + 1.3 * lane * REQUESTS_LANE, style.series_color(lane)
        page.put(REQUESTS_LEFT - 0.12, y + REQUESTS_LANE / 2, name, style.SMALL, ha="right")
        for time in times:
            page.plot([place(time)] * 2, [y, y + REQUESTS_LANE], color=color, lw=1.2)
    _scale(page, 0.0, end, place, REQUESTS_HEAD + 1.3 * REQUESTS_LANE * len(arrivals), unit)
    each = (
        f"{name}: {len(times)}, the last at {style.digits(times[-1])} {unit}"
        for name, times in arrivals.items()
        if len(times)
    )
    page.say(f"Requests that arrive: {'; '.join(each)}")
    return page.figure


def _scale(page: Page, start: float, end: float, place, y: float, unit: str) -> None:
    span = end - start
    step = next(s for s in _steps() if span / s <= 11)
    page.plot([place(start), place(end)], [y + 0.06] * 2, color=style.FAINT, lw=0.8)
    for number in range(int(span / step + 1e-6) + 1):
        x = place(start + number * step)
        page.plot([x, x], [y + 0.06, y + 0.1], color=style.FAINT, lw=0.8)
        words = f"{number * step:g} {unit}"
        page.note(x, y + 0.22, words, "center")


def _steps():
    size = 1e-6
    while True:
        yield from (size, 2 * size, 5 * size)
        size *= 10
