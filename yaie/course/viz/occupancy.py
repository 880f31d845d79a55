"""How many warps stay resident as each thread block takes more of something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from yaie.course.viz import style

LEFT, TOP, HEIGHT, BOTTOM = 0.6, 0.5, 1.9, 0.6  # inches


def draw_occupancy(
    panels: Mapping[str, Sequence[tuple[float, int]]],
    most: int = 64,
    at: style.Place | None = None,
) -> Figure:
    """Draw stairs: resident warps of a multiprocessor over what a thread block takes.

    Args:
        panels: what grows → (how much of it, resident warps) in ascending order.
        most: warps that the multiprocessor can hold.
    """
    if not panels:
        raise ValueError("panels must hold at least one panel, got none")
    page = style.Page(style.WIDTH, TOP + HEIGHT + BOTTOM, at)
    pitch = style.WIDTH / len(panels)
    for number, (name, steps) in enumerate(panels.items()):
        ax = style.plain(page.axes(number * pitch + LEFT, TOP, pitch - LEFT - 0.3, HEIGHT))
        amounts, warps = zip(*steps, strict=True)
        color = style.series_color(number)
        ax.fill_between(amounts, warps, step="post", color=style.tint(color, 0.3), lw=0)
        ax.step(amounts, warps, where="post", color=color, lw=1.6)
        ax.set(xlim=(amounts[0], amounts[-1]), ylim=(0, most * 1.03))
        ax.set_yticks([0, most // 4, most // 2, 3 * most // 4, most])
        ax.grid(axis="y", color=style.WASH, lw=0.8)
        ax.set_axisbelow(True)
        ax.set_xlabel(name, fontsize=style.SMALL, color=style.MUTED, fontfamily=style.FONT)
        style.put(page.ax, number * pitch + 0.15, 0.22, "resident warps", style.BODY, weight="bold")
    for name, steps in panels.items():
        page.say(f"Resident warps against {name}, in stairs: {style.trend(steps)}")
    return page.figure
