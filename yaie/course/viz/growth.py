"""Costs that grow with every token, and what a cache makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from yaie.course.viz import style

MARGIN = 0.12


def draw_growth(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    xlabel: str = "token generated",
    log: bool = False,
    at: style.Place | None = None,
) -> Figure:
    """Draw counted costs step by step, such as FLOPs and bytes with and without a cache.

    Args:
        panels: title → name of a curve → its value at each step.
        log: a logarithmic scale upwards.
    """
    if not panels:
        raise ValueError("panels must hold at least one panel, got none")
    names = [name for curves in panels.values() for name in curves]
    label_width = max(style.text_width(name) for name in names) + 0.15
    pitch = (style.WIDTH - 2 * MARGIN) / len(panels)
    page = style.Page(style.WIDTH, 3.0, at)
    for i, (title, curves) in enumerate(panels.items()):
        x = MARGIN + i * pitch
        style.put(page.ax, x, 0.17, title, 9.5, weight="bold")
        ax = style.plain(page.axes(x + 0.55, 0.4, pitch - 0.75 - label_width, 2.1))
        for number, values in enumerate(curves.values()):
            color = style.series_color(number)
            ax.plot(range(1, len(values) + 1), values, color=color, lw=2.0)
        if log:
            ax.set_yscale("log")
        else:
            ax.set_ylim(bottom=0)
            ax.yaxis.set_major_locator(MaxNLocator(nbins=5))
        ax.yaxis.set_major_formatter(EngFormatter(sep=" "))
        ax.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        ax.margins(x=0.0)
        ax.grid(axis="y", color=style.WASH, lw=0.8)
        ax.set_axisbelow(True)
        ax.set_xlabel(xlabel, fontsize=style.SMALL, color=style.MUTED, fontfamily=style.FONT)
        _label_ends(ax, curves)
    write = EngFormatter(sep=" ", places=1)
    for title, curves in panels.items():
        each = (f"{name} from {write(v[0])} to {write(v[-1])}" for name, v in curves.items())
        page.say(f"{title}: {'; '.join(each)}")
    length = max(len(values) for curves in panels.values() for values in curves.values())
    page.say(f"Along the page: {xlabel}, 1 to {length}")
    return page.figure


def _label_ends(ax: Axes, curves: Mapping[str, Sequence[float]]) -> None:
    """Write each curve's name at its end, moved apart where they would touch."""
    ends = []
    for number, (name, values) in enumerate(curves.items()):
        height = ax.transAxes.inverted().transform(ax.transData.transform((1, values[-1])))[1]
        ends.append([height, name, style.series_color(number)])
    ends.sort(key=lambda end: end[0])
    lowest = -1.0
    for end in ends:
        end[0] = lowest = max(end[0], lowest + 0.085)
    for height, name, color in ends:
        style.put(ax, 1.03, height, name, color=color, transform=ax.transAxes, clip_on=False)
