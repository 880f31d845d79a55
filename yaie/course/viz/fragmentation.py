"""What contiguous memory wastes and paged memory does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style
from yaie.course.viz.blocks import PoolState

MARGIN = 0.12


@dataclass(frozen=True)
class Extent:
    """A piece of memory given to a request, in tokens: `used` of its `size` hold something."""

    start: int
    size: int
    used: int
    owner: int = 0


def pool_extents(state: PoolState) -> list[Extent]:
    """The extents of a paged cache: its blocks."""
    extents: dict[int, Extent] = {}
    size = state.block_size
    colors = style.name_colors(state.tables)
    for name, table in state.tables.items():
        for i, block in enumerate(table):
            used = min(size, state.lengths[name] - i * size)
            extents.setdefault(block, Extent(block * size, size, used, colors[name]))
    return list(extents.values())


def draw_fragmentation(
    layouts: Mapping[str, Sequence[Extent]],
    capacity: int,
    at: style.Place | None = None,
) -> Figure:
    """Compare ways to lay requests out in the same memory.

    Each layout is a bar of `capacity` tokens: colored where tokens are, hatched where memory is
    reserved and empty, white where it is free. The words beside it count the three.
    """
    if not layouts:
        raise ValueError("layouts must name at least one layout, got none")
    bar_height, row = 0.42, 0.98
    page = style.Page(style.WIDTH, MARGIN + row * len(layouts), at)
    scale = (page.width - 2 * MARGIN) / capacity
    for i, (name, extents) in enumerate(layouts.items()):
        y = MARGIN + row * i
        used = sum(extent.used for extent in extents)
        reserved = sum(extent.size for extent in extents) - used
        requests = len({extent.owner for extent in extents})
        style.put(page.ax, MARGIN, y + 0.1, name, 9.5, weight="bold")
        _draw_memory(page.ax, extents, capacity, y + 0.24, bar_height, scale)
        free = capacity - used - reserved
        words = (
            f"{style.count(requests, 'request')};  {used / capacity:.0%} holds tokens, "
            f"{reserved / capacity:.0%} reserved and empty, {free / capacity:.0%} free"
        )
        longest = _longest_hole(extents, capacity)
        if 0 < longest < free:
            words += f" (longest hole: {longest} tokens)"
        style.put(page.ax, MARGIN, y + 0.24 + bar_height + 0.12, words, style.SMALL, style.MUTED)
        page.say(f"{name}: {words}")
    return page.figure


def _draw_memory(
    ax: Axes, extents: Sequence[Extent], capacity: int, y: float, height: float, scale: float
) -> None:
    style.box(ax, MARGIN, y, capacity * scale, height, style.PAPER, style.FAINT, radius=0.0)
    for extent in extents:
        color = style.series_color(extent.owner)
        x = MARGIN + extent.start * scale
        if extent.size > extent.used:
            ax.add_artist(
                _rectangle(
                    x,
                    y,
                    extent.size * scale,
                    height,
                    style.tint(color, 0.12),
                    "////",
                    style.tint(color, 0.55),
                )
            )
        ax.add_artist(_rectangle(x, y, extent.used * scale, height, style.tint(color, 0.75)))
    style.box(ax, MARGIN, y, capacity * scale, height, "none", "#8d949f", radius=0.0)


def _rectangle(x, y, width, height, face, hatch=None, edge="none") -> Rectangle:
    return Rectangle(
        (x, y), width, height, facecolor=face, edgecolor=edge, hatch=hatch, linewidth=0.0
    )


def _longest_hole(extents: Sequence[Extent], capacity: int) -> int:
    end = longest = 0
    for extent in sorted(extents, key=lambda extent: extent.start):
        longest = max(longest, extent.start - end)
        end = max(end, extent.start + extent.size)
    return max(longest, capacity - end)
