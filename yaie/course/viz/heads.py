"""Grouped-query attention: which query heads read which keys and values."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Circle

from yaie.course.viz import style

MARGIN = 0.12


def draw_head_groups(
    heads: tuple[int, int], bytes_per_token: int | None = None, at: style.Place | None = None
) -> Figure:
    """Draw which query heads read which head of keys and values.

    Args:
        heads: (query heads, KV heads).
        bytes_per_token: KV bytes of one token, if they are to be said.
    """
    num_heads, num_kv_heads = heads
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(f"heads: {num_heads} query heads do not divide over {num_kv_heads}")
    pitch = min(0.3, (style.WIDTH - 2 * MARGIN) / num_heads)
    words = f"{style.count(num_heads, 'query head')}, {style.count(num_kv_heads, 'KV head')}"
    if bytes_per_token is not None:
        words += f": {bytes_per_token:,} bytes a token"
    width = max(num_heads * pitch, style.text_width(words, style.SMALL)) + 2 * MARGIN
    page = style.Page(width, 1.75, at)
    group = num_heads // num_kv_heads
    size = pitch * 0.76
    for head in range(num_heads):
        color = style.series_color(head // group)
        x = MARGIN + (head + 0.5) * pitch
        kv_x = MARGIN + (head // group + 0.5) * group * pitch
        page.ax.plot([x, kv_x], [0.3, 1.05], color=style.tint(color, 0.6), lw=1.4, zorder=1)
        page.ax.add_artist(Circle((x, 0.28), size / 2, color=style.tint(color, 0.75), zorder=2))
        if size >= 0.2:
            style.put(page.ax, x, 0.285, str(head), 7, ha="center")
    for head in range(num_kv_heads):
        x = MARGIN + (head + 0.5) * group * pitch
        color = style.tint(style.series_color(head), 0.75)
        style.box(page.ax, x - size / 2, 1.0, size, 0.26, color, zorder=2, radius=0.03)
        if size >= 0.2:
            style.put(page.ax, x, 1.135, str(head), 7, ha="center")
    style.put(page.ax, MARGIN, 1.55, words, style.SMALL, style.MUTED)
    page.say(f"{words}; {style.count(group, 'query head')} for each KV head")
    return page.figure
