"""Kept times by batch size: a line for each way to compute the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from yaie.course.viz import style

LABELS = 2.6  # inches right of the lines, for their names


def draw_batch_times(
    title: str, times: Mapping[str, Mapping[int, float]], at: style.Place | None = None
) -> Figure:
    """Draw microseconds against the batch, both on logarithmic scales.

    Args:
        title: what was measured, on which machine and when.
        times: way -> batch -> milliseconds.
    """
    if not any(times.values()):
        raise ValueError("times must hold at least one time, got none")
    page = style.Page(style.WIDTH, 3.6, at)
    style.put(page.ax, 0.14, 0.17, title, style.BODY, weight="bold")
    ax = style.plain(page.axes(0.75, 0.4, style.WIDTH - 0.9 - LABELS, 2.65))
    ends = []
    for number, (name, by_batch) in enumerate(times.items()):
        batches = sorted(by_batch)
        color = style.series_color(number)
        values = [1e3 * by_batch[batch] for batch in batches]
        ax.plot(batches, values, color=color, lw=2.0, marker="o", ms=3.5)
        ends.append((values[-1], name, color))
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    every = sorted({batch for by_batch in times.values() for batch in by_batch})
    ax.set_xticks(every, [str(batch) for batch in every])
    ax.minorticks_off()
    ax.grid(axis="y", color=style.WASH, lw=0.8)
    ax.set_axisbelow(True)
    for set_label, words in ((ax.set_xlabel, "requests"), (ax.set_ylabel, "µs")):
        set_label(words, fontsize=style.SMALL, color=style.MUTED, fontfamily=style.FONT)
    _name_lines(page, ax, ends)
    page.say(f"{title}, time against requests")
    for name, by_batch in times.items():
        page.say(f"{name}: {style.trend([(b, 1e3 * by_batch[b]) for b in sorted(by_batch)], 'µs')}")
    return page.figure


def _name_lines(page: style.Page, ax, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write each line's name right of its end, moved apart where they would touch."""
    x, low = style.WIDTH - LABELS, 0.4 + 2.65
    scale = ax.get_yaxis().get_transform()
    bottom, top = (scale.transform([limit])[0] for limit in ax.get_ylim())
    before = low + 1.0
    for value, name, color in sorted(ends):
        y = low - 2.65 * (scale.transform([value])[0] - bottom) / (top - bottom)
        y = min(y, before - 0.17)
        before = y
        style.put(
            page.ax, x, y, f"{name}, {value:,.{1 if value < 100 else 0}f} µs", style.SMALL, color
        )
