"""What a prefix cache saved, request by request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from yaie.course.viz import style

MARGIN = 0.12
LEFT, CHART = 1.0, 7.8  # inches: where the charts begin, and how wide they are
BARS, POOL = 2.0, 0.9  # inches: how high
GREEN, ORANGE = style.tint(style.GREEN, 0.75), style.tint(style.ORANGE, 0.75)


@dataclass(frozen=True)
class TraceRecord:
    """One request of a trace.

    Attributes:
        request_id: its name.
        reused: prompt tokens found in the cache: prefill that was skipped.
        computed: prompt tokens that had to be computed.
        blocks_in_use: blocks of the pool that were not free after the request, if known.
        evicted: blocks evicted to make room for the request.
    """

    request_id: str
    reused: int
    computed: int
    blocks_in_use: int | None = None
    evicted: int = 0


def draw_trace(
    records: Sequence[TraceRecord],
    num_blocks: int | None = None,
    at: style.Place | None = None,
) -> Figure:
    """Draw a bar for each request, its prompt tokens reused and computed; below, the pool.

    Args:
        records: the requests in the order in which they came.
        num_blocks: size of the pool: the top of the lower scale.
    """
    if not records:
        raise ValueError("records must hold at least one request, got none")
    has_pool = any(record.blocks_in_use is not None for record in records)
    names = _Names(records)
    names_top = 0.4 + BARS + (0.2 + POOL if has_pool else 0.0)
    page = style.Page(style.WIDTH, names_top + 0.1 + names.height + MARGIN, at)
    reused = sum(record.reused for record in records)
    total = reused + sum(record.computed for record in records)
    words = f"{reused:,} of {total:,} prompt tokens reused: hit rate {reused / max(1, total):.0%}"
    style.put(page.ax, MARGIN, 0.18, words, 9.5, weight="bold")
    _draw_tokens(page, records)
    if has_pool:
        _draw_pool(page, records, num_blocks)
    names.draw(page.ax, names_top + 0.06)
    evicted = sum(record.evicted for record in records)
    page.say(f"{style.count(len(records), 'request')}: {words}")
    if has_pool:
        most = max(record.blocks_in_use or 0 for record in records)
        of = f" of {num_blocks}" if num_blocks else ""
        page.say(f"At most {most}{of} blocks in use, {evicted} evicted")
    return page.figure


class _Names:
    """The requests' names below the bars: level, upright, or every so many as a number."""

    def __init__(self, records: Sequence[TraceRecord]) -> None:
        self.names = [style.printable(record.request_id) for record in records]
        self.pitch = CHART / len(records)
        widest = max(style.text_width(name, 7) for name in self.names)
        self.is_level = widest + 0.06 <= self.pitch
        self.is_upright = not self.is_level and self.pitch >= 0.14
        self.height = min(widest, 1.0) if self.is_upright else 0.15

    def draw(self, ax: Axes, top: float) -> None:
        every = 1
        if not (self.is_level or self.is_upright):
            every = next(n for n in (5, 10, 20, 50, 100, 10**9) if n * self.pitch >= 0.35)
        for i in range(0, len(self.names), every):
            x = LEFT + (i + 0.5) * self.pitch
            if self.is_upright:
                name = style.shorten(self.names[i], 1.0, 7)
                style.put(ax, x, top, name, 7, style.MUTED, "center", "top", rotation=90)
            else:
                name = self.names[i] if self.is_level else str(i)
                style.put(ax, x, top + 0.08, name, 7, style.MUTED, "center")


def _lane(page: style.Page, top: float, height: float, records: Sequence[TraceRecord]) -> Axes:
    ax = style.plain(page.axes(LEFT, top, CHART, height))
    ax.set_xlim(-0.5, len(records) - 0.5)
    ax.tick_params(bottom=False, labelbottom=False)
    ax.grid(axis="y", color=style.WASH, lw=0.8)
    ax.set_axisbelow(True)
    return ax


def _label(page: style.Page, lines: tuple[str, ...], middle: float) -> None:
    for i, line in enumerate(lines):
        y = middle + 0.14 * (i - (len(lines) - 1) / 2)
        style.put(page.ax, LEFT - 0.5, y, line, style.SMALL, style.MUTED, "right")


def _draw_tokens(page: style.Page, records: Sequence[TraceRecord]) -> None:
    ax = _lane(page, 0.4, BARS, records)
    reused = [record.reused for record in records]
    computed = [record.computed for record in records]
    thickness = 0.8 if len(records) <= 100 else 1.0
    ax.bar(range(len(records)), reused, thickness, color=GREEN)
    ax.bar(range(len(records)), computed, thickness, bottom=reused, color=ORANGE)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    highest = max(1, *(a + b for a, b in zip(reused, computed, strict=True)))
    ax.set_ylim(0, highest * 1.05)
    _label(page, ("prompt", "tokens"), 0.4 + BARS / 2)
    last = records[-1]
    scale = BARS / (highest * 1.05)
    low = 0.4 + BARS - last.reused / 2 * scale
    high = 0.4 + BARS - (last.reused + last.computed / 2) * scale
    low = min(low, 0.4 + BARS - 0.08)
    high = min(high, low - 0.17)
    x = LEFT + CHART + 0.08
    style.put(page.ax, x, low, "reused", color=style.GREEN, weight="bold")
    style.put(page.ax, x, high, "computed", color=style.ORANGE, weight="bold")


def _draw_pool(page: style.Page, records: Sequence[TraceRecord], num_blocks: int | None) -> None:
    top = 0.4 + BARS + 0.2
    ax = _lane(page, top, POOL - 0.05, records)
    used = [(i, r.blocks_in_use) for i, r in enumerate(records) if r.blocks_in_use is not None]
    edges = [i + shift for i, _ in used for shift in (-0.5, 0.5)]
    heights = [blocks for _, blocks in used for _ in (0, 1)]
    ax.fill_between(edges, heights, color=style.tint(style.BLUE, 0.25), linewidth=0.0)
    ax.plot(edges, heights, color=style.BLUE, lw=1.5)
    most = num_blocks or max(1, *heights)
    ax.set_ylim(0, most * 1.15)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    _label(page, ("blocks", "in use"), top + POOL / 2)
    x = LEFT + CHART + 0.08
    if num_blocks:
        ax.axhline(num_blocks, color=style.INK, lw=0.9)
        y = top + (POOL - 0.05) * (1 - 1 / 1.15)
        style.put(page.ax, x, y, f"pool of {num_blocks}", style.SMALL, style.MUTED)
    evicted = [(i, record.evicted) for i, record in enumerate(records) if record.evicted]
    for i, _ in evicted:
        ax.plot([i], [most * 1.07], marker="v", ms=5, color=style.VERMILION, clip_on=False)
    if evicted:
        total = sum(number for _, number in evicted)
        words = f"{style.count(total, 'block')} evicted"
        style.put(page.ax, x, top + POOL / 2 + 0.1, words, style.SMALL, style.VERMILION)
