"""Charts on scales: curves, bars, costs step by step, lengths, traces of requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from matplotlib.figure import Figure
from matplotlib.ticker import (
    EngFormatter,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from yaie.course.viz import style
from yaie.course.viz.page import HALO, Page, Sheet

# ---------------------------------------------------------------------------------- charts

MARGIN, GAP = 0.12, 0.35
HEAD, BOTTOM = 0.62, 0.55  # inches above and below the axes
DASHES = ((0, (4, 3)), (0, (1, 2)))  # of guides, in turn
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """One pair of axes.

    Attributes:
        curves: name -> (x, y), ascending in x. A name of "" is not written.
        guides: curves of theory, gray: the first one dashed, the second one dotted.
        marks: name -> x of a vertical line.
        bands: name of a curve -> (x, lowest, highest), an area in its color.
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
    bands: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False
    steps: bool = False
    names: Sequence[str] = ()


def draw_charts(charts: Sequence[Chart], height: float = 2.3) -> Figure:
    """Draw charts in a row, on the width of a page."""
    style.check_some(charts, "charts")
    page = Page(style.WIDTH, HEAD + height + BOTTOM)
    pitch = (style.WIDTH - 2 * MARGIN + GAP) / len(charts)
    for number, chart in enumerate(charts):
        x = MARGIN + number * pitch
        page.put(x, 0.17, chart.title, weight="bold")
        _legend(page, chart, x, pitch - GAP)
        _draw(page.chart(x + 0.55, HEAD, pitch - GAP - 0.62, height, lines=True), chart)
        curves = {**chart.curves, **chart.guides}
        said = [f"{name} {_told(chart, points)}".strip() for name, points in curves.items()]
        marks = [f"mark “{name}” at {style.digits(x)}" for name, x in chart.marks.items()]
        marks += [f"an area from the lowest to the highest {name}" for name in chart.bands]
        over = f"{chart.ylabel} against {chart.xlabel}".removeprefix(" ")
        page.say(f"{chart.title}, {over}: {'; '.join([*said, *marks])}")
    return page.figure


def _told(chart: Chart, points: Points) -> str:
    """A curve in words."""
    if not chart.names:
        return style.trend(points)
    return ", ".join(f"{chart.names[int(x)]} {style.digits(y)}" for x, y in points)


def _legend(page: Page, chart: Chart, x: float, width: float) -> None:
    entries = [
        (name, style.series_color(number), 2.0, "solid") for number, name in enumerate(chart.curves)
    ]
    entries += [(name, style.MUTED, 1.0, dash) for name, dash in zip(chart.guides, cycle(DASHES))]
    entries = [entry for entry in entries if entry[0]]
    widths = [style.text_width(name, style.SMALL) + 0.22 for name, *_ in entries]
    places = style.flow(widths, width, 0.12)
    for (name, color, thick, dash), (left, line) in zip(entries, places, strict=True):
        y = 0.38 + 0.15 * line
        page.plot([x + left, x + left + 0.16], [y, y], color=color, lw=thick, ls=dash)
        page.put(x + left + 0.2, y, name, style.SMALL)


def _draw(ax: Sheet, chart: Chart) -> None:
    if chart.names:
        _draw_bars(ax, chart)
    else:
        _draw_curves(ax, chart)
    values = [y for points in chart.curves.values() for _, y in points]
    ax.set_ylim(0.0, 1.12 * max(values) or 1.0)  # measured curves fill it, guides may leave it
    if chart.log_y:
        ax.set_yscale("log")
        ax.set_ylim(0.7 * min(values), 1.5 * max(values))
        decades = max(values) / min(values) > 1000
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if decades else (1.0, 2.0, 5.0)))
        ax.yaxis.set_minor_formatter(NullFormatter())
    plain = FuncFormatter(lambda value, _: f"{value:,g}")
    ax.yaxis.set_major_formatter(EngFormatter(sep=" ") if max(values) >= 1e6 else plain)
    ax.label_scales(x=chart.xlabel, y=chart.ylabel)


def _draw_bars(ax: Sheet, chart: Chart) -> None:
    width = 0.7 / len(chart.curves)
    for number, points in enumerate(chart.curves.values()):
        left = (number - (len(chart.curves) - 1) / 2) * width
        for x, y in points:
            ax.bar(x + left, y, 0.9 * width, color=style.series_color(number))
    ax.set_xticks(range(len(chart.names)), chart.names)
    ax.set_xlim(-0.5, len(chart.names) - 0.5)


def _draw_curves(ax: Sheet, chart: Chart) -> None:
    drawstyle = "steps-post" if chart.steps else "default"
    for number, (name, points) in enumerate(chart.curves.items()):
        look = {"color": style.series_color(number), "lw": 2.0, "ms": 3.5, "drawstyle": drawstyle}
        if name in chart.bands:
            ax.fill_between(*zip(*chart.bands[name], strict=True), color=look["color"], alpha=0.2)
        marker = None if chart.steps or len(points) > 40 else "o"
        ax.plot(*zip(*points, strict=True), marker=marker, **look)
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
        place = {"transform": ax.get_xaxis_transform(), "path_effects": HALO}
        y = 0.02 + 0.08 * number
        ax.put(x, y, f" {name}", style.SMALL, style.VERMILION, va="bottom", zorder=4, **place)


def _sparse(ticks: Sequence[float]) -> list[float]:
    """Ticks that do not touch each other on a scale of doublings."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or tick / kept[-1] > 1.45:
            kept.append(tick)
    return kept


# ---------------------------------------------------------------------------------- costs


def draw_growth(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    xlabel: str = "token generated",
    log: bool = False,
) -> Figure:
    """Draw counted costs step by step, such as FLOPs and bytes with and without a cache.

    Args:
        panels: title → name of a curve → its value at each step, from step 1 on.
        log: a logarithmic scale upwards.
    """
    style.check_some(panels, "panels")
    charts = []
    for title, curves in panels.items():
        points = {name: list(enumerate(values, 1)) for name, values in curves.items()}
        charts.append(Chart(title, xlabel, "", points, log_y=log))
    return draw_charts(charts)


def draw_tile_bytes(
    counted: Mapping[int, int],
    curves: Mapping[str, Mapping[int, float]],
    levels: Mapping[str, float],
) -> Figure:
    """Draw counted bytes, formulas and constants, both scales log.

    Args:
        counted: size of a tile → bytes.
        curves: name → size of a tile → bytes.
        levels: name → bytes, a horizontal line.
    """
    style.check_some(counted, "counted")
    shown = {"counted": sorted(counted.items())}
    shown |= {name: [(size, y) for size in sorted(counted)] for name, y in levels.items()}
    formulas = {name: sorted(points.items()) for name, points in curves.items()}
    title, xlabel = "bytes read and written", "queries in a tile"
    chart = Chart(title, xlabel, "", shown, formulas, log_x=True, log_y=True)
    return draw_charts([chart])


def draw_batch_times(title: str, times: Mapping[str, Mapping[int, float]]) -> Figure:
    """Draw microseconds against the batch, both on logarithmic scales.

    Args:
        title: what was measured, on which machine and when.
        times: way -> batch -> milliseconds.
    """
    curves = {}
    for way, by_batch in times.items():
        points = [(batch, 1e3 * ms) for batch, ms in sorted(by_batch.items())]
        if points:
            curves[f"{way}, {style.digits(points[-1][1])} µs"] = points
    style.check_some(curves, "times")
    chart = Chart(title, "requests", "µs", curves, log_x=True, log_y=True)
    return draw_charts([chart])


# ---------------------------------------------------------------------------------- lengths


def _stack(ax: Sheet, lower: Sequence[int], upper: Sequence[int], colors: Sequence) -> None:
    """Bars in a row, each of two parts."""
    thickness = 0.8 if len(lower) <= 100 else 1.0
    ax.bar(range(len(lower)), lower, thickness, color=colors[0])
    ax.bar(range(len(lower)), upper, thickness, lower, color=colors[1])
    ax.set_xlim(-0.7, len(lower) - 0.3)


def draw_lengths(prompts: Sequence[int], answers: Sequence[int], reserved: int) -> Figure:
    """Draw a bar for each request, shortest first: its prompt, its answer, and what stays empty.

    Args:
        prompts, answers: tokens of each request.
        reserved: tokens that are set aside for every request.
    """
    if len(prompts) != len(answers):
        raise ValueError(f"answers must be {len(prompts)}, as prompts are, got {len(answers)}")
    pairs = sorted(zip(prompts, answers, strict=True), key=sum)
    page = Page(style.WIDTH, 2.9)
    empty = style.tint(style.INK, 0.1)
    colors = [style.tint(color, 0.75) for color in (style.BLUE, style.ORANGE)]
    names = ("prompt", "answer", f"reserved ({reserved:,}), empty")
    page.legend(0.62, 0.18, dict(zip(names, (*colors, empty), strict=True)))
    ax = page.chart(0.62, 0.4, style.WIDTH - 0.84, 2.05)
    ax.bar(range(len(pairs)), [reserved] * len(pairs), 0.8, color=empty)
    _stack(ax, *zip(*pairs, strict=True), colors)
    ax.set(ylim=(0, reserved), xticks=[])
    ax.label_scales(x=f"{len(pairs)} requests, shortest first", y="tokens")
    totals = [sum(pair) for pair in pairs]
    used = sum(totals) / reserved / len(totals)
    page.say(
        f"{style.count(len(pairs), 'request')}, prompt and answer together from {min(totals):,} to "
        f"{max(totals):,} tokens; {reserved:,} are reserved for each, {used:.0%} of which are used"
    )
    return page.figure


# ---------------------------------------------------------------------------------- trace

LEFT, WIDE = 1.0, 7.8  # inches: where the charts begin, and how wide they are
BARS, POOL = 2.0, 0.85  # inches: how high


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


def draw_trace(records: Sequence[TraceRecord], num_blocks: int | None = None) -> Figure:
    """Draw a bar for each request, its prompt tokens reused and computed; below, the pool.

    Args:
        records: the requests in the order in which they came.
        num_blocks: size of the pool: the top of the lower scale.
    """
    style.check_some(records, "records")
    has_pool = any(record.blocks_in_use is not None for record in records)
    names = [style.shorten(style.printable(record.request_id), 1.0, 7) for record in records]
    widest, pitch = max(style.text_width(name, 7) for name in names), WIDE / len(records)
    upright = widest + 0.06 > pitch
    height = 0.4 + BARS + (0.2 + POOL) * has_pool
    page = Page(style.WIDTH, height + 0.3 + (widest if upright and pitch >= 0.14 else 0.15))
    reused, computed = [r.reused for r in records], [r.computed for r in records]
    total = sum(reused) + sum(computed)
    words = (
        f"{sum(reused):,} of {total:,} prompt tokens reused: hit rate "
        f"{sum(reused) / max(1, total):.0%}"
    )
    page.put(MARGIN, 0.18, words, 9.5, weight="bold")
    page.say(f"{style.count(len(records), 'request')}: {words}")
    colors = style.tint(style.GREEN, 0.75), style.tint(style.ORANGE, 0.75)
    page.legend(LEFT + WIDE - 1.6, 0.18, dict(zip(("reused", "computed"), colors, strict=True)))
    ax = page.chart(LEFT, 0.4, WIDE, BARS, bottom=not has_pool, lines=True)
    _stack(ax, reused, computed, colors)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    ax.label_scales(y="prompt tokens")
    if has_pool:
        ax = _draw_pool(page, records, num_blocks)
    if pitch >= 0.14:
        ax.set_xticks(range(len(names)), names, parse_math=False)
        ax.tick_params(axis="x", length=0, labelsize=7, labelrotation=90 * upright)
    return page.figure


def _draw_pool(page: Page, records: Sequence[TraceRecord], num_blocks: int | None) -> Sheet:
    ax = page.chart(LEFT, 0.6 + BARS, WIDE, POOL, lines=True)
    used = [(i, r.blocks_in_use) for i, r in enumerate(records) if r.blocks_in_use is not None]
    edges = [i + shift for i, _ in used for shift in (-0.5, 0.5)]
    heights = [blocks for _, blocks in used for _ in (0, 1)]
    ax.fill_between(edges, heights, color=style.tint(style.BLUE, 0.25), linewidth=0.0)
    ax.plot(edges, heights, color=style.BLUE, lw=1.5)
    most = num_blocks or max(1, *heights)
    ax.set(xlim=(-0.7, len(records) - 0.3), ylim=(0, most * 1.15))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    ax.label_scales(y="blocks in use")
    x, top = LEFT + WIDE + 0.08, 0.6 + BARS
    if num_blocks:
        ax.axhline(num_blocks, color=style.INK, lw=0.9)
        page.note(x, top + POOL * (1 - 1 / 1.15), f"pool of {num_blocks}")
    evicted = [i for i, record in enumerate(records) if record.evicted]
    total = sum(record.evicted for record in records)
    look = {"marker": "v", "ms": 5, "color": style.VERMILION, "ls": "", "clip_on": False}
    ax.plot(evicted, [most * 1.07] * len(evicted), **look)
    if evicted:
        words = f"{style.count(total, 'block')} evicted"
        page.put(x, top + POOL / 2 + 0.12, words, style.SMALL, style.VERMILION)
    of = f" of {num_blocks}" if num_blocks else ""
    page.say(f"At most {max(heights)}{of} blocks in use, {total} evicted")
    return ax
