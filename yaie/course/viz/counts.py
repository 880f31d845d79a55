"""Drawn tokens counted: beside what was expected, and how far off chance alone would be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.12
ROW = 0.26
HEADER = 0.36
GAP = 0.35


@dataclass(frozen=True)
class Tally:
    """How often each token was drawn, and how often it should have been."""

    name: str
    counts: Sequence[int]
    expected: Sequence[float]


def draw_counts(
    tallies: Sequence[Tally], labels: Sequence[str], at: style.Place | None = None
) -> Figure:
    """Draw one column for each tally, one row for each token.

    A blue bar is the count, a black line across it what was expected.
    """
    if not tallies:
        raise ValueError("tallies must hold at least one, got none")
    shown = [style.token_label(label) for label in labels]
    left = MARGIN + max(style.text_width(label) for label in shown) + 0.12
    columns = len(tallies)
    width = min(2.6, (style.WIDTH - left - MARGIN - GAP * (columns - 1)) / columns)
    page_width = left + columns * width + (columns - 1) * GAP + MARGIN
    page = style.Page(page_width, HEADER + ROW * len(shown) + 0.15, at)
    largest = max(max(*tally.counts, *tally.expected) for tally in tallies)
    unit = (width - 0.45) / largest
    for row, label in enumerate(shown):
        style.put(page.ax, left - 0.1, HEADER + (row + 0.5) * ROW, label, ha="right")
    for i, tally in enumerate(tallies):
        x = left + i * (width + GAP)
        name = style.shorten(tally.name, width + GAP / 2, 9.5, "bold")
        style.put(page.ax, x, 0.17, name, 9.5, weight="bold")
        bottom = HEADER + ROW * len(shown)
        page.ax.plot([x, x], [HEADER, bottom], color=style.FAINT, lw=1.0)
        for row, (count, expected) in enumerate(zip(tally.counts, tally.expected, strict=True)):
            top = HEADER + (row + 0.2) * ROW
            if count:
                blue = style.tint(style.BLUE, 0.7)
                style.box(page.ax, x, top, count * unit, ROW * 0.6, blue, radius=0.0)
            line = x + expected * unit
            ends = [top - 0.03, top + ROW * 0.6 + 0.03]
            page.ax.plot([line] * 2, ends, color=style.INK, lw=1.6, zorder=4)
            end = max(x + count * unit, line) + 0.05
            middle = HEADER + (row + 0.5) * ROW
            style.put(page.ax, end, middle, f"{count:,}", style.SMALL, style.MUTED)
    for tally in tallies:
        rows = zip(labels, tally.counts, tally.expected, strict=True)
        each = (
            f"{style.quote(label)} {count:,} ({expected:.0f})" for label, count, expected in rows
        )
        page.say(f"{tally.name}, tokens drawn (and expected): {style.some(each)}")
    return page.figure


def draw_chance(
    values: Sequence[float],
    limit: float,
    marks: Mapping[str, float],
    at: style.Place | None = None,
) -> Figure:
    """Draw a histogram of a statistic under chance alone, its limit, and samplers that were tested.

    Args:
        values: the statistic of many experiments in which nothing is wrong.
        limit: where the test begins to refuse.
        marks: name → statistic; what lies beyond the right end is written there.
    """
    page = style.Page(7.6, 2.25, at)
    ax = style.plain(page.axes(0.35, 0.15, 6.9, 1.55), left=False)
    right = limit * 1.9
    ax.hist(values, bins=60, range=(0, right), color=style.tint(style.BLUE, 0.5))
    ax.set_xlim(0, right)
    height = ax.get_ylim()[1]
    ax.axvline(limit, color=style.VERMILION, lw=1.4)
    word = f"limit {limit:.1f}"
    options = {"fontsize": style.SMALL, "fontfamily": style.FONT}
    ax.text(limit + 0.3, height * 0.9, word, color=style.VERMILION, **options)
    for i, (name, value) in enumerate(marks.items()):
        far = value > right
        y = height * (0.62 - 0.2 * i)
        text = f"{name}: {value:,.1f}" + (" →" if far else "")
        x = right if far else value
        ax.plot([x], [y], marker=">" if far else "o", color=style.INK, ms=5, clip_on=False)
        ax.text(
            x - right * 0.012 if far else x + right * 0.012,
            y,
            text,
            color=style.INK,
            ha="right" if far else "left",
            va="center",
            **options,
        )
    ax.set_xlabel("chi-square", color=style.MUTED, **options)
    below = sum(value < limit for value in values) / max(1, len(values))
    each = (
        f"{name} {value:,.1f}, {'beyond' if value > limit else 'below'} it"
        for name, value in marks.items()
    )
    page.say(
        f"Histogram of chi-square under chance alone, {below:.1%} of it below the limit "
        f"{limit:.1f}: {style.some(each)}"
    )
    return page.figure
