"""Kept results of `yaie bench kernels`: how much of what the device can do each way reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style

MARGIN = 0.12
LEFT = 2.4  # inches, where the bars begin
BARS = 5.0  # inches for the whole ceiling
ROW, HEAD = 0.24, 0.3


def draw_bench(
    record: Mapping[str, Any], operators: Sequence[str], at: style.Place | None = None
) -> Figure:
    """Draw a bar for each way to compute some operators; the engine's own are blue.

    Args:
        record: the content of a file that `yaie bench kernels --output FILE` wrote.
        operators: which, in this order. Ways without a time are left out.
    """
    chosen = [r for name in operators for r in record["results"] if r["operator"] == name]
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for row in chosen:
        if row.get("ms") is not None:
            cases.setdefault(f"{row['operator']}, {row['shape']}, {row['dtype']}", []).append(row)
    if not cases:
        raise ValueError(f"record must have times of {' or '.join(operators)}, got none")
    height = 0.42 + sum(HEAD + ROW * len(ways) for ways in cases.values()) + 0.1
    page = style.Page(9.2, height, at)
    gpu = record["machine"].get("gpu") or record["machine"]["processor"]
    words = f"{gpu}, {record['date']}, torch {record['versions']['torch']}"
    style.put(page.ax, MARGIN, 0.17, words, style.BODY, weight="bold")
    style.put(page.ax, LEFT + BARS, 0.17, "the ceiling", style.SMALL, style.MUTED, "center")
    page.ax.plot([LEFT + BARS] * 2, [0.3, height - 0.08], color=style.FAINT, lw=0.8, zorder=0)
    y = 0.36
    for title, ways in cases.items():
        style.put(page.ax, MARGIN, y + 0.17, title, style.SMALL, weight="bold")
        y += HEAD
        for row in ways:
            color = style.BLUE if row["ours"] else style.FAINT
            page.ax.add_artist(
                Rectangle((LEFT, y), BARS * row["fraction"], ROW - 0.06, facecolor=color)
            )
            middle = y + (ROW - 0.06) / 2
            style.put(page.ax, LEFT - 0.1, middle, row["who"], style.SMALL, ha="right")
            words = f"{row['ms']:#.3g} ms, {row['fraction']:.0%}"
            style.put(page.ax, LEFT + 1.08 * BARS, middle, words, style.SMALL)
            y += ROW
    page.say(f"The share of the ceiling that each way reaches on {gpu}, {record['date']}")
    for title, ways in cases.items():
        best = {row["ours"]: row for row in sorted(ways, key=lambda row: row["fraction"])}
        said = (
            f"of {'ours' if ours else 'others'} {best[ours]['who']} {best[ours]['fraction']:.0%} "
            f"({best[ours]['ms']:#.3g} ms)"
            for ours in (True, False)
            if ours in best
        )
        page.say(f"{title}: best {style.some(said)}")
    return page.figure
