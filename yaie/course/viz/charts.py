"""Figures of serving: charts of one or more lines, and traces of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

# ---------------------------------------------------------------------------------- charts

MARGIN, GAP = 0.12, 0.35
HEAD, BOTTOM = 0.62, 0.55  # inches above and below the axes
DASHES = ((0, (4, 3)), (0, (1, 2)))  # of guides, in turn
HALO = withStroke(linewidth=2.5, foreground=style.PAPER)  # so that no curve strikes a word out
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """One pair of axes.

    Attributes:
        curves: name -> (x, y), ascending in x. A name of "" is not written.
        guides: curves of theory, gray: the first one dashed, the second one dotted.
        marks: name -> x of a vertical line.
        log_x: a scale on which each doubling is as wide, ticked where the curves have points.
        log_y: powers of ten.
        steps: y keeps its value until the next x.
        names: what stands below x = 0, 1, 2 …, if these are no numbers; the curves are then bars.
    """

    title: str
    xlabel: str
    ylabel: str
    curves: Mapping[str, Points]
    guides: Mapping[str, Points] = field(default_factory=dict)
    marks: Mapping[str, float] = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False
    steps: bool = False
    names: Sequence[str] = ()


def draw_charts(charts: Sequence[Chart], height: float = 2.3, at: Place | None = None) -> Figure:
    """Draw charts in a row, on the width of a page."""
    if not charts:
        raise ValueError("charts must hold at least one chart, got none")
    page = Page(style.WIDTH, HEAD + height + BOTTOM, at)
    pitch = (style.WIDTH - 2 * MARGIN + GAP) / len(charts)
    for number, chart in enumerate(charts):
        x = MARGIN + number * pitch
        page.put(x, 0.17, chart.title, weight="bold")
        _legend(page, chart, x, pitch - GAP)
        ax = page.chart(x + 0.55, HEAD, pitch - GAP - 0.62, height)
        _draw(ax, chart)
    for chart in charts:
        curves = {**chart.curves, **chart.guides}
        said = [f"{name} {_told(chart, points)}".strip() for name, points in curves.items()]
        marks = [f"mark “{name}” at {style.digits(x)}" for name, x in chart.marks.items()]
        over = f"{chart.ylabel} against {chart.xlabel}".removeprefix(" ")
        page.say(f"{chart.title}, {over}: {'; '.join([*said, *marks])}")
    return page.figure


def _told(chart: Chart, points: Points) -> str:
    """A curve in words."""
    if not chart.names:
        return style.trend(points)
    return ", ".join(f"{chart.names[int(x)]} {style.digits(y)}" for x, y in points)


def _legend(page: Page, chart: Chart, x: float, width: float) -> None:
    colors = [style.series_color(number) for number in range(len(chart.curves))]
    entries = [
        (name, color, 2.0, "solid") for name, color in zip(chart.curves, colors, strict=True)
    ]
    entries += [(name, style.MUTED, 1.0, dash) for name, dash in zip(chart.guides, cycle(DASHES))]
    entries = [entry for entry in entries if entry[0]]
    widths = [style.text_width(name, style.SMALL) + 0.22 for name, *_ in entries]
    places = style.flow(widths, width, 0.12)
    for (name, color, thick, dash), (left, line) in zip(entries, places, strict=True):
        y = 0.38 + 0.15 * line
        page.plot([x + left, x + left + 0.16], [y, y], color=color, lw=thick, ls=dash)
        page.put(x + left + 0.2, y, name, style.SMALL, color)


def _draw(ax: Axes, chart: Chart) -> None:
    if chart.names:
        _draw_bars(ax, chart)
    else:
        _draw_curves(ax, chart)
    if chart.log_y:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.set_ylim(*_limits(chart))
    ax.grid(axis="y", color=style.WASH, lw=0.8)
    ax.set_axisbelow(True)
    for set_label, words in ((ax.set_xlabel, chart.xlabel), (ax.set_ylabel, chart.ylabel)):
        set_label(words, fontsize=style.SMALL, color=style.MUTED, fontfamily=style.FONT)


def _draw_bars(ax: Axes, chart: Chart) -> None:
    width = 0.7 / len(chart.curves)
    for number, points in enumerate(chart.curves.values()):
        left = (number - (len(chart.curves) - 1) / 2) * width
        for x, y in points:
            ax.bar(x + left, y, 0.9 * width, color=style.series_color(number))
    ax.set_xticks(range(len(chart.names)), chart.names)
    ax.set_xlim(-0.5, len(chart.names) - 0.5)


def _draw_curves(ax: Axes, chart: Chart) -> None:
    drawstyle = "steps-post" if chart.steps else "default"
    for number, points in enumerate(chart.curves.values()):
        marker = None if chart.steps or len(points) > 40 else "o"
        ax.plot(
            *zip(*points, strict=True),
            color=style.series_color(number),
            lw=2.0,
            ms=3.5,
            marker=marker,
            drawstyle=drawstyle,
        )
    for points, dash in zip(chart.guides.values(), cycle(DASHES)):
        ax.plot(*zip(*points, strict=True), color=style.MUTED, lw=1.0, ls=dash, zorder=1)
    if chart.log_x:
        ax.set_xscale("log", base=2)
        ticks = sorted({x for points in chart.curves.values() for x, _ in points})
        ax.set_xticks(_sparse(ticks), [f"{x:g}" for x in _sparse(ticks)])
        ax.xaxis.set_minor_locator(NullLocator())
    elif all(float(x).is_integer() for points in chart.curves.values() for x, _ in points):
        ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    for number, (name, x) in enumerate(chart.marks.items()):
        ax.axvline(x, color=style.VERMILION, lw=1.0, ls=(0, (2, 2)), zorder=0)
        ax.text(
            x,
            0.02 + 0.08 * number,
            f" {name}",
            transform=ax.get_xaxis_transform(),
            fontsize=style.SMALL,
            color=style.VERMILION,
            fontfamily=style.FONT,
            ha="left",
            va="bottom",
            parse_math=False,
            zorder=4,
            path_effects=[HALO],
        )


def _limits(chart: Chart) -> tuple[float, float]:
    """The range of y: measured curves fill it, guides may leave it."""
    values = [y for points in chart.curves.values() for _, y in points]
    if chart.log_y:
        return 0.7 * min(values), 1.5 * max(values)
    return 0.0, 1.12 * max(values) or 1.0


def _sparse(ticks: Sequence[float]) -> list[float]:
    """Ticks that do not touch each other on a scale of doublings."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or tick / kept[-1] > 1.45:
            kept.append(tick)
    return kept


# ---------------------------------------------------------------------------------- trace

TRACE_MARGIN = 0.12
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
    records: Sequence[TraceRecord], num_blocks: int | None = None, at: Place | None = None
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
    page = Page(style.WIDTH, names_top + 0.1 + names.height + TRACE_MARGIN, at)
    reused = sum(record.reused for record in records)
    total = reused + sum(record.computed for record in records)
    words = f"{reused:,} of {total:,} prompt tokens reused: hit rate {reused / max(1, total):.0%}"
    page.put(TRACE_MARGIN, 0.18, words, 9.5, weight="bold")
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
                ax.put(x, top, name, 7, style.MUTED, "center", "top", rotation=90)
            else:
                name = self.names[i] if self.is_level else str(i)
                ax.put(x, top + 0.08, name, 7, style.MUTED, "center")


def _lane(page: Page, top: float, height: float, records: Sequence[TraceRecord]) -> Axes:
    ax = page.chart(LEFT, top, CHART, height)
    ax.set_xlim(-0.5, len(records) - 0.5)
    ax.tick_params(bottom=False, labelbottom=False)
    ax.grid(axis="y", color=style.WASH, lw=0.8)
    ax.set_axisbelow(True)
    return ax


def _label(page: Page, lines: tuple[str, ...], middle: float) -> None:
    for i, line in enumerate(lines):
        y = middle + 0.14 * (i - (len(lines) - 1) / 2)
        page.note(LEFT - 0.5, y, line, "right")


def _draw_tokens(page: Page, records: Sequence[TraceRecord]) -> None:
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
    page.put(x, low, "reused", color=style.GREEN, weight="bold")
    page.put(x, high, "computed", color=style.ORANGE, weight="bold")


def _draw_pool(page: Page, records: Sequence[TraceRecord], num_blocks: int | None) -> None:
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
        page.note(x, y, f"pool of {num_blocks}")
    evicted = [(i, record.evicted) for i, record in enumerate(records) if record.evicted]
    for i, _ in evicted:
        ax.plot([i], [most * 1.07], marker="v", ms=5, color=style.VERMILION, clip_on=False)
    if evicted:
        total = sum(number for _, number in evicted)
        words = f"{style.count(total, 'block')} evicted"
        page.put(x, top + POOL / 2 + 0.1, words, style.SMALL, style.VERMILION)
