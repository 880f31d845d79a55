"""Warp groups that take turns: when each multiplies and when it computes weights."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page
from yaie.course.viz.style import BLUE, GREEN, INK, ORANGE, SMALL, VERMILION, tint

LEFT, WIDTH, ROW, MARGIN = 1.55, 8.0, 0.26, 0.16  # inches
WAITING = tint(VERMILION, 0.3)
COLORS = (BLUE, GREEN, ORANGE)


class Span(NamedTuple):
    """A product or the exponentials of a tile.

    Attributes:
        consumer: the warp group for which it is computed.
        what: "scores", "output" or "weights".
        tile: of keys, counted by the consumer.
        begin, end: in cycles.
    """

    consumer: int
    what: str
    tile: int
    begin: float
    end: float


def idle(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """From when to when no product runs, until the last one's end."""
    found, before = [], 0.0
    for span in sorted(spans, key=lambda span: span.begin):
        if span.what != "weights":
            if span.begin > before + 1e-6:
                found.append((before, span.begin))
            before = max(before, span.end)
    return found


def busy(spans: Sequence[Span]) -> float:
    """The share of the time until the last product's end in which the tensor cores multiply."""
    end = max(span.end for span in spans if span.what != "weights")
    return 1 - sum(after - before for before, after in idle(spans)) / end


def draw_turns(spans: Sequence[Span], until: float | None = None) -> Figure:
    """Draw each consumer's products and weights along time; red: no product runs."""
    style.check_some(spans, "spans")
    consumers = 1 + max(span.consumer for span in spans)
    end = until or max(span.end for span in spans)
    page = Page(LEFT + WIDTH + MARGIN, 0.75 + (1 + 2 * consumers) * ROW)
    grid = page.grid(LEFT, 0.16, WIDTH / end, ROW, 0.015, 0.04)
    for consumer in range(consumers):
        grid.name(2 * consumer, f"consumer {consumer}: multiplies")
        grid.name(2 * consumer + 1, "weights")
    for span in spans:
        face, row = COLORS[span.consumer % 3], 2 * span.consumer
        ink, name = style.ink_on(face), f"{span.what[0]}{span.tile}"
        if span.what == "weights":
            face, row, ink, name = tint(face, 0.35), row + 1, INK, f"w{span.tile}"
        grid.bar(row, span.begin, span.end, face, name, size=6.5, color=ink)
    grid.name(2 * consumers, "tensor cores wait")
    for before, after in idle(spans):
        grid.bar(2 * consumers, before, after, tint(VERMILION, 0.6))
    ends = max(span.end for span in spans if span.what != "weights")
    words = f"{ends:,.0f} cycles; the tensor cores multiply for {busy(spans):.0%} of them"
    page.put(LEFT, page.height - 0.34, words, SMALL, weight="bold")
    key = "s: queries × keys, o: weights × values, w: scores to weights; the number is the tile's"
    page.note(LEFT, page.height - 0.14, key)
    page.say(
        f"{style.count(consumers, 'consumer')} and "
        f"{style.count(sum(s.what != 'weights' for s in spans), 'product')} along time: {words}"
    )
    return page.figure


def draw_order(blocks: Sequence[Sequence[tuple[int, int]]], until: int) -> Figure:
    """Draw what each thread block computes, a bar as wide as its piece has tiles of keys.

    Args:
        blocks: for each of them (tile of queries, head), in its order; tile t sees t + 1 of keys.
        until: how many tiles of keys the width shows.
    """
    loads = [sum(tile + 1 for tile, _ in pieces) for pieces in blocks]
    height = 0.2
    page = Page(LEFT + WIDTH + MARGIN, 0.75 + len(blocks) * height)
    grid = page.grid(LEFT, 0.12, WIDTH / until, height, 0.012, 0.03)
    most = 1 + max((tile for pieces in blocks for tile, _ in pieces), default=0)
    for row, pieces in enumerate(blocks):
        grid.name(row, f"thread block {row}")
        begin = 0
        for tile, _ in pieces:
            face = tint(BLUE, 0.2 + 0.8 * (tile + 1) / most)
            look = {"size": 6, "color": style.ink_on(face)}
            grid.bar(row, begin, begin + tile + 1, face, str(tile), **look)
            begin += tile + 1
        grid.bar(row, begin, max(loads), WAITING)
    waste = 1 - sum(loads) / (max(loads) * len(blocks))
    words = (
        f"the last is done after {max(loads)} tiles of keys, the first after {min(loads)}; "
        f"thread blocks wait {waste:.0%} of the time"
    )
    page.put(LEFT, page.height - 0.4, words, SMALL, weight="bold")
    key = "a tile of queries and its number, as wide as it has keys"
    page.legend(LEFT, page.height - 0.18, {key: tint(BLUE, 0.6), "waits": WAITING})
    page.say(f"{style.count(len(blocks), 'thread block')} and their tiles of queries: {words}")
    return page.figure


def draw_accumulator(
    lane: int, columns: int = 16, hidden: Callable[[int, int], bool] = lambda row, column: False
) -> Figure:
    """Draw which lane holds each number of a wgmma's 64 rows, warp by warp.

    Args:
        lane: of each warp, whose numbers are in color, with their registers' numbers.
        columns: how many, a multiple of 8.
        hidden: whether a (row, column) is masked; it is hatched.
    """
    width, height, gap = 0.142, 0.17, 0.2
    page = Page(2 * MARGIN + 4 * columns * width + 3 * gap, 0.6 + 16 * height)
    for warp in range(4):
        left = MARGIN + warp * (columns * width + gap)
        page.put(left, 0.12, f"warp {warp}, rows {16 * warp} to {16 * warp + 15}", SMALL)
        grid = page.grid(left, 0.25, width, height, 0.01)
        for row in range(16):
            for column in range(columns):
                holder = row % 8 * 4 + column % 8 // 2
                look = {"face": tint(INK, 0.05 + 0.05 * (row % 2)), "color": INK}
                if hidden(16 * warp + row, column):
                    look = {"face": style.FAINT, "color": style.MUTED}
                if holder == lane:
                    register = column // 8 * 4 + row // 8 * 2 + column % 2
                    face = style.series_color(register)
                    look = {"face": face, "color": style.ink_on(face)}
                    holder = register
                grid.cell(row, column, text=str(holder), size=6, radius=0.01, **look)
    words = (
        f"gray: the lane that holds a number; in color: i of scores[i], for the {columns // 2} "
        f"numbers of lane {lane}"
    )
    page.note(MARGIN, page.height - 0.16, words)
    page.say(f"A wgmma's 64 rows and {columns} columns; {words}")
    return page.figure
