"""Thread blocks of unequal length on the multiprocessors of a device, one after another."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style

MARGIN = 0.14
WIDTH = 4.7
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


def draw_timeline(state: Timeline, at: style.Place | None = None) -> Figure:
    """Draw a row for each multiprocessor and a bar for each thread block; a color is a sequence."""
    page = style.Page(WIDTH, TOP + ROW * state.processors + 0.3, at)
    ax, unit = page.ax, (WIDTH - 2 * MARGIN) / state.longest
    for processor in range(state.processors):
        y = TOP + processor * ROW
        ax.add_artist(
            Rectangle((MARGIN, y), WIDTH - 2 * MARGIN, ROW - 0.04, facecolor=style.WASH, lw=0)
        )
    for processor, sequence, begin, end in started(state):
        paler = sequence // len(style.SERIES) % 2
        color = style.tint(style.series_color(sequence), 0.45 if paler else 0.85)
        ax.add_artist(
            Rectangle(
                (MARGIN + begin * unit, TOP + processor * ROW),
                max((end - begin) * unit - 0.015, 0.01), ROW - 0.04, facecolor=color, lw=0,
            )
        )  # fmt: skip
    last, work = finished(state), sum(keys for _, keys in state.pieces)
    busy = work / (last * state.processors) if last else 0.0
    blocks = state.processors if state.equal else len(state.pieces)
    words = f"{style.count(blocks, 'thread block')}, done after {last:,} keys"
    style.put(ax, MARGIN, 0.2, words, style.BODY, weight="bold")
    ax.plot([MARGIN + last * unit] * 2, [TOP - 0.05, TOP + ROW * state.processors], lw=1.0,
            color=style.INK)  # fmt: skip
    note = (
        f"{state.processors} multiprocessors, busy {busy:.0%} of that time; a color is a sequence"
    )
    style.put(ax, MARGIN, page.height - 0.13, note, style.SMALL, style.MUTED)
    page.say(f"{words}; {note}")
    return page.figure
