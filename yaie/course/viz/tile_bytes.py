"""Bytes that attention moves against the size of its tiles, counted and by formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, NullFormatter, NullLocator

from yaie.course.viz import style

MARGIN = 0.14


def draw_tile_bytes(
    counted: Mapping[int, int],
    curves: Mapping[str, Mapping[int, float]],
    levels: Mapping[str, float],
    xlabel: str = "queries in a tile",
    at: style.Place | None = None,
) -> Figure:
    """Draw counted bytes as points, formulas as lines and constants as levels, both scales log.

    Args:
        counted: size of a tile → bytes.
        curves: name → size of a tile → bytes.
        levels: name → bytes, a horizontal line.
    """
    if not counted:
        raise ValueError("counted must hold at least one point, got none")
    page = style.Page(7.4, 3.5, at)
    style.put(page.ax, MARGIN, 0.17, "bytes read and written", 9.5, weight="bold")
    ax = style.plain(page.axes(0.85, 0.4, 4.3, 2.55))
    ax.set(xscale="log", yscale="log")
    sizes = sorted(counted)
    for number, (name, points) in enumerate(curves.items()):
        _line(ax, sorted(points), [points[s] for s in sorted(points)], name,
              style.series_color(number))  # fmt: skip
    for name, level in levels.items():
        ax.axhline(level, color=style.MUTED, lw=1.2, ls="--")
        style.put(ax, 1.03, level, name, color=style.MUTED, transform=ax.get_yaxis_transform(),
                  clip_on=False)  # fmt: skip
    ax.plot(sizes, [counted[s] for s in sizes], "o", color=style.VERMILION, ms=6)
    ax.xaxis.set_major_locator(FixedLocator(sizes))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticklabels([str(size) for size in sizes])
    ax.yaxis.set_major_formatter(EngFormatter(unit="B", sep=" "))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(axis="y", color=style.WASH, lw=0.8)
    ax.set_xlabel(xlabel, fontsize=style.SMALL, color=style.MUTED, fontfamily=style.FONT)
    style.put(page.ax, 5.3, 0.17, "● counted", style.BODY, style.VERMILION, weight="bold")
    write = EngFormatter(unit="B", sep=" ", places=1)
    page.say(
        f"Bytes read and written against {xlabel}; counted: "
        + style.some((f"{size}, {write(counted[size])}" for size in sizes), 12)
    )
    for name, points in curves.items():
        low, high = min(points), max(points)
        page.say(f"{name}: from {write(points[low])} at {low} to {write(points[high])} at {high}")
    for name, level in levels.items():
        page.say(f"{name}: {write(level)}")
    return page.figure


def _line(ax, sizes: Sequence[int], values: Sequence[float], name: str, color: str) -> None:
    ax.plot(sizes, values, color=color, lw=1.8)
    style.put(ax, 1.03, values[-1], name, color=color, transform=ax.get_yaxis_transform(),
              clip_on=False)  # fmt: skip
