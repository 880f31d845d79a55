"""Attention weights as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style

MARGIN = 0.12


def draw_attention(
    weights: Any,
    keys: Sequence[str] | None = None,
    queries: Sequence[str] | None = None,
    causal: bool = True,
    cell: float = 0.42,
    at: style.Place | None = None,
) -> Figure:
    """Draw the attention weights of one head as a heat map, one row for each query.

    Args:
        weights: `[queries, keys]`; each row sums to 1.
        keys: the text of the key tokens; positions by default.
        queries: the text of the query tokens; by default the last of `keys`.
        causal: hatch the keys that come after the query, where the last query is the last key,
            and outline any of them that has weight all the same.
        cell: inches of one weight, at most; from 0.34 on it carries its number.
    """
    weights = style.numbers(weights, "weights", 2)
    num_queries, num_keys = weights.shape
    keys = [str(i) for i in range(num_keys)] if keys is None else list(keys)
    if len(keys) != num_keys:
        raise ValueError(f"keys must name the {num_keys} keys of weights, got {len(keys)}")
    queries = keys[-num_queries:] if queries is None else list(queries)
    if len(queries) != num_queries:
        raise ValueError(f"queries must name the {num_queries} queries, got {len(queries)}")
    side = min(cell, max(0.12, 7.5 / max(num_keys, num_queries)))
    shown_keys = [style.shorten(style.token_label(key), 1.1) for key in keys]
    shown_queries = [style.shorten(style.token_label(query), 1.1) for query in queries]
    every = 1 if side >= 0.17 else int(np.ceil(0.17 / side))
    names = max(style.text_width(query) for query in shown_queries)
    left = MARGIN + 0.1 + max(names, style.text_width("queries ↓", style.SMALL))
    top = MARGIN + 0.25 + max(style.text_width(key) for key in shown_keys)
    width = max(left + num_keys * side + MARGIN, 2.4)
    page = style.Page(width, top + num_queries * side + MARGIN, at)
    colors = matplotlib.colormaps["Blues"]
    past = num_keys - num_queries
    for i in range(num_queries):
        for j in range(num_keys):
            x, y = left + j * side, top + i * side
            _draw_weight(page.ax, x, y, side, weights[i, j], causal and j > i + past, colors)
    for j in range(0, num_keys, every):
        style.put(
            page.ax,
            left + (j + 0.5) * side,
            top - 0.06,
            shown_keys[j],
            rotation=90,
            ha="center",
            va="bottom",
        )
    for i in range(0, num_queries, every):
        style.put(page.ax, left - 0.06, top + (i + 0.5) * side, shown_queries[i], ha="right")
    style.put(page.ax, left, MARGIN + 0.05, "keys →", style.SMALL, style.MUTED)
    style.put(page.ax, left - 0.06, top - 0.12, "queries ↓", style.SMALL, style.MUTED, "right")
    _say(page, weights, keys, queries, causal)
    return page.figure


def _say(
    page: style.Page, weights: np.ndarray, keys: Sequence[str], queries: Sequence[str], causal: bool
) -> None:
    num_queries, num_keys = weights.shape
    after = np.triu(np.ones(weights.shape, dtype=bool), num_keys - num_queries + 1) & causal
    rows, columns = style.count(num_queries, "row"), style.count(num_keys, "column")
    words = f"Attention weights, queries in {rows}, keys in {columns}"
    if after.any():
        seen = np.count_nonzero(weights[after])
        words += f"; {seen} of keys after their query" if seen else "; later keys have none"
    page.say(words)
    largest = np.nan_to_num(weights, nan=-1.0).argmax(axis=1)
    said = (
        f"{style.quote(query)} on {style.quote(keys[j])} {row[j]:.2f}"
        for query, j, row in zip(queries, largest, weights, strict=True)
    )
    page.say(f"Largest weight of each query: {style.some(said)}")


def _draw_weight(
    ax: Axes, x: float, y: float, side: float, weight: float, future: bool, colors: Any
) -> None:
    gap = min(0.02, side * 0.08)
    if future and weight == 0:
        ax.add_artist(
            Rectangle(
                (x, y),
                side - gap,
                side - gap,
                facecolor=style.WASH,
                hatch="/////",
                edgecolor=style.tint(style.INK, 0.14),
                linewidth=0.0,
            )
        )
        return
    level = float(np.clip(weight, 0.0, 1.0)) if np.isfinite(weight) else 0.0
    ax.add_artist(
        Rectangle(
            (x, y),
            side - gap,
            side - gap,
            facecolor=colors(0.04 + 0.9 * level),
            edgecolor=style.VERMILION if future else style.FAINT,
            linewidth=1.8 if future else 0.5,
            zorder=3 if future else 2,
        )
    )
    if side >= 0.34:
        label = "1" if weight >= 0.995 else f"{weight:.2f}".replace("0.", ".")
        ink = style.PAPER if level > 0.55 else style.INK
        style.put(ax, x + side / 2, y + side / 2, label, 7, ink, "center", zorder=4)
