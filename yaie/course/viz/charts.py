"""Measured curves side by side, with the lines and marks that explain them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from yaie.course.viz import style

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


def draw_charts(
    charts: Sequence[Chart], height: float = 2.3, at: style.Place | None = None
) -> Figure:
    """Draw charts in a row, on the width of a page."""
    if not charts:
        raise ValueError("charts must hold at least one chart, got none")
    page = style.Page(style.WIDTH, HEAD + height + BOTTOM, at)
    pitch = (style.WIDTH - 2 * MARGIN + GAP) / len(charts)
    for number, chart in enumerate(charts):
        x = MARGIN + number * pitch
        style.put(page.ax, x, 0.17, chart.title, style.BODY, weight="bold")
        _legend(page, chart, x, pitch - GAP)
        ax = style.plain(page.axes(x + 0.55, HEAD, pitch - GAP - 0.62, height))
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


def _legend(page: style.Page, chart: Chart, x: float, width: float) -> None:
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
        page.ax.plot([x + left, x + left + 0.16], [y, y], color=color, lw=thick, ls=dash)
        style.put(page.ax, x + left + 0.2, y, name, style.SMALL, color)


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
            *zip(*points, strict=True), color=style.series_color(number), lw=2.0, ms=3.5,
            marker=marker, drawstyle=drawstyle,
        )  # fmt: skip
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
            x, 0.02 + 0.08 * number, f" {name}", transform=ax.get_xaxis_transform(),
            fontsize=style.SMALL, color=style.VERMILION, fontfamily=style.FONT, ha="left",
            va="bottom", parse_math=False, zorder=4, path_effects=[HALO],
        )  # fmt: skip


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
