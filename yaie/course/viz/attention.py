"""Attention: weights, heads, rotary tables and the online softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.ticker import MaxNLocator

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

# ---------------------------------------------------------------------------------- attention

MARGIN = 0.12


def draw_attention(
    weights: Any,
    keys: Sequence[str] | None = None,
    queries: Sequence[str] | None = None,
    causal: bool = True,
    cell: float = 0.42,
    at: Place | None = None,
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
    page = Page(width, top + num_queries * side + MARGIN, at)
    colors = matplotlib.colormaps["Blues"]
    past = num_keys - num_queries
    for i in range(num_queries):
        for j in range(num_keys):
            x, y = left + j * side, top + i * side
            _draw_weight(page.ax, x, y, side, weights[i, j], causal and j > i + past, colors)
    for j in range(0, num_keys, every):
        spot = left + (j + 0.5) * side, top - 0.06
        page.put(*spot, shown_keys[j], rotation=90, ha="center", va="bottom")
    for i in range(0, num_queries, every):
        page.put(left - 0.06, top + (i + 0.5) * side, shown_queries[i], ha="right")
    page.note(left, MARGIN + 0.05, "keys →")
    page.note(left - 0.06, top - 0.12, "queries ↓", "right")
    _say(page, weights, keys, queries, causal)
    return page.figure


def _say(
    page: Page, weights: np.ndarray, keys: Sequence[str], queries: Sequence[str], causal: bool
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
        ax.rect(
            x,
            y,
            side - gap,
            side - gap,
            style.WASH,
            hatch="/////",
            edgecolor=style.tint(style.INK, 0.14),
            linewidth=0.0,
        )
        return
    level = float(np.clip(weight, 0.0, 1.0)) if np.isfinite(weight) else 0.0
    ax.rect(
        x,
        y,
        side - gap,
        side - gap,
        colors(0.04 + 0.9 * level),
        edgecolor=style.VERMILION if future else style.FAINT,
        linewidth=1.8 if future else 0.5,
        zorder=3 if future else 2,
    )
    if side >= 0.34:
        label = "1" if weight >= 0.995 else f"{weight:.2f}".replace("0.", ".")
        ink = style.PAPER if level > 0.55 else style.INK
        ax.put(x + side / 2, y + side / 2, label, 7, ink, "center", zorder=4)


# ---------------------------------------------------------------------------------- heads


def draw_head_groups(
    heads: tuple[int, int], bytes_per_token: int | None = None, at: Place | None = None
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
    page = Page(width, 1.75, at)
    group = num_heads // num_kv_heads
    size = pitch * 0.76
    for head in range(num_heads):
        color = style.series_color(head // group)
        x = MARGIN + (head + 0.5) * pitch
        kv_x = MARGIN + (head // group + 0.5) * group * pitch
        page.plot([x, kv_x], [0.3, 1.05], color=style.tint(color, 0.6), lw=1.4, zorder=1)
        page.ax.add_artist(Circle((x, 0.28), size / 2, color=style.tint(color, 0.75), zorder=2))
        if size >= 0.2:
            page.put(x, 0.285, str(head), 7, ha="center")
    for head in range(num_kv_heads):
        x = MARGIN + (head + 0.5) * group * pitch
        color = style.tint(style.series_color(head), 0.75)
        page.box(x - size / 2, 1.0, size, 0.26, color, zorder=2, radius=0.03)
        if size >= 0.2:
            page.put(x, 1.135, str(head), 7, ha="center")
    page.note(MARGIN, 1.55, words)
    page.say(f"{words}; {style.count(group, 'query head')} for each KV head")
    return page.figure


# ---------------------------------------------------------------------------------- rotary


def draw_rotary(
    cos: Any, sin: Any, num_dials: int = 6, num_arrows: int = 8, at: Place | None = None
) -> Figure:
    """Draw rotary tables: how far each pair of dimensions turns as the position grows.

    Above, one dial for some of the pairs, with one arrow for each position. Below, the angle of
    every pair at every position.

    Args:
        cos, sin: `[positions, pairs]`, for example a learner's tables.
        num_dials, num_arrows: pairs and positions to show as dials and arrows, at most.
    """
    cos, sin = style.numbers(cos, "cos", 2), style.numbers(sin, "sin", 2)
    if cos.shape != sin.shape:
        raise ValueError(f"cos and sin must have one shape, got {cos.shape} and {sin.shape}")
    num_positions, num_pairs = cos.shape
    num_dials, num_arrows = min(num_dials, num_pairs), min(num_arrows, num_positions)
    page = Page(style.WIDTH, 4.75, at)
    pitch = (page.width - 2 * MARGIN) / max(num_dials, 4)
    radius = min(0.62, pitch * 0.42)
    # The first pairs turn fastest and differ most, so more of them are shown.
    spread = np.linspace(0, 1, num_dials) ** 2 * (num_pairs - 1)
    pairs = np.unique(spread.round().astype(int))
    words = f"positions 0 (black) to {num_arrows - 1} (palest)"
    page.note(MARGIN, 0.15, words)
    for i, pair in enumerate(pairs):
        center = (MARGIN + (i + 0.5) * pitch, 0.45 + radius)
        _draw_dial(page.ax, center, radius, cos[:num_arrows, pair], sin[:num_arrows, pair])
        page.put(center[0], center[1] + radius + 0.14, f"pair {pair}", ha="center")
    _draw_angles(page, np.arctan2(sin, cos) % (2 * np.pi), 2.4)
    position = min(1, num_positions - 1)
    first, last = np.arctan2(sin[position, [0, -1]], cos[position, [0, -1]])
    page.say(
        f"Angles of {style.count(num_pairs, 'pair')} at {style.count(num_positions, 'position')}: "
        f"at position {position} pair 0 has turned by {style.digits(first)} radians, pair "
        f"{num_pairs - 1} by {style.digits(last)}"
    )
    return page.figure


def _draw_dial(
    ax: Axes, center: tuple[float, float], radius: float, cos: np.ndarray, sin: np.ndarray
) -> None:
    ax.add_artist(Circle(center, radius, facecolor=style.WASH, edgecolor=style.FAINT))
    for index in reversed(range(len(cos))):
        tip = (center[0] + radius * cos[index], center[1] - radius * sin[index])
        strength = 1.0 - 0.8 * index / max(1, len(cos) - 1)
        color = style.INK if index == 0 else style.tint(style.BLUE, strength)
        ax.add_artist(
            FancyArrowPatch(
                center,
                tip,
                arrowstyle="-|>",
                mutation_scale=8,
                shrinkA=0,
                shrinkB=0,
                color=color,
                linewidth=1.6,
                zorder=4 if index else 5,
            )
        )


def _draw_angles(page: Page, angles: np.ndarray, top: float) -> None:
    left, width, height = 0.75, page.width - 0.75 - 1.15, page.height - top - 0.55
    ax = page.chart(left, top, width, height)
    image = ax.imshow(
        angles.T,
        aspect="auto",
        cmap="twilight",
        vmin=0,
        vmax=2 * np.pi,
        interpolation="nearest",
        origin="upper",
    )
    ax.label_scales(x="position", y="pair")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
    scale = page.chart(left + width + 0.2, top, 0.15, height, left=False, bottom=False)
    bar = page.figure.colorbar(image, cax=scale)
    bar.set_ticks([0, np.pi, 2 * np.pi], labels=["0", "π", "2π"])
    bar.ax.tick_params(labelsize=style.SMALL, labelcolor=style.MUTED, length=0, labelright=True)
    bar.outline.set_visible(False)
    page.note(left + width + 0.2, top - 0.12, "angle")


# ---------------------------------------------------------------------------------- online

ONLINE_MARGIN = 0.14
CHART = 2.85  # inches for all scores; few of them take less
HEIGHT = 1.05  # of each of the two charts
NUMBERS = 1.25  # inches for the numbers beside them


@dataclass(frozen=True)
class OnlineStep:
    """One row after a tile was taken in.

    Attributes:
        scores: the whole row, the part that has not come yet included.
        start, end: the tile that was taken in last; `end` scores have come.
        maximum, total: what the softmax keeps.
        before: the maximum before this tile.
    """

    scores: tuple[float, ...]
    start: int
    end: int
    maximum: float
    total: float
    before: float

    @property
    def rescale(self) -> float:
        """What the sum of before has to be multiplied with."""
        return math.exp(self.before - self.maximum) if self.before > -math.inf else 0.0


def record_online(state: Any, scores: Sequence[float], values: Any, tile: int) -> list[OnlineStep]:
    """Feed one row to an empty `OnlineSoftmax` of rows (1,), `tile` scores at a time.

    Args:
        state: is changed; any class with `update`, `maximum` and `total`.
        scores: one number a key.
        values: `[keys, head_dim]`.
    """
    row = values.new_tensor(list(scores)).unsqueeze(0)
    steps = []
    for start in range(0, len(scores), tile):
        end, before = min(start + tile, len(scores)), state.maximum.item()
        state.update(row[:, start:end], values[start:end])
        kept = state.maximum.item(), state.total.item()
        steps.append(OnlineStep(tuple(map(float, scores)), start, end, *kept, before))
    return steps


def draw_online(state: OnlineStep, at: Place | None = None) -> Figure:
    """Draw the scores with the running maximum, and below them the exponentials that are summed."""
    count = len(state.scores)
    bar = min(0.23, CHART / count)
    gap = bar / 4
    left = ONLINE_MARGIN + 0.2
    width = left + count * bar + NUMBERS + ONLINE_MARGIN
    page = Page(width, 2 * HEIGHT + 1.0, at)
    ax = page.ax
    finite = [s for s in state.scores if math.isfinite(s)]
    low, high = min([*finite, 0.0]), max([*finite, 1.0])
    top, floor = 0.34, 0.34 + HEIGHT

    def height(score: float) -> float:
        return floor - (score - low) / (high - low) * HEIGHT * 0.92

    ax.note(ONLINE_MARGIN, 0.16, "scores")
    tile_x = left + state.start * bar - gap / 2
    tile_width = (state.end - state.start) * bar
    ax.rect(tile_x, top - 0.05, tile_width, 2 * HEIGHT + 0.5, style.WASH)
    zero = height(0.0)
    for i, score in enumerate(state.scores):
        x = left + i * bar
        if not math.isfinite(score):
            ax.put(x + (bar - gap) / 2, floor - 0.09, "-∞", 6, style.MUTED, "center")
            continue
        color = style.BLUE if i < state.end else style.FAINT
        y = height(score)
        ax.rect(x, min(y, zero), bar - gap, max(abs(zero - y), 0.012), color)
    ax.plot([left, left + count * bar], [zero, zero], color=style.FAINT, lw=0.8)
    if math.isfinite(state.maximum):
        y = height(min(max(state.maximum, low), high))
        ax.plot([left, left + state.end * bar], [y, y], color=style.VERMILION, lw=1.4)
    bottom = floor + 0.4 + HEIGHT
    ax.note(ONLINE_MARGIN, floor + 0.24, "exp(score - maximum)")
    ax.plot([left, left + count * bar], [bottom, bottom], color=style.FAINT, lw=0.8)
    for i, score in enumerate(state.scores[: state.end]):
        if math.isfinite(score) and math.isfinite(state.maximum):
            weight = math.exp(min(score - state.maximum, 0.3))
            color = style.GREEN if i >= state.start else style.tint(style.GREEN, 0.45)
            tall = weight * HEIGHT * 0.72
            ax.rect(left + i * bar, bottom - tall, bar - gap, tall, color)
    x = left + count * bar + 0.15
    lines = [
        ("maximum", three_places(state.maximum), style.VERMILION, top + 0.12),
        ("maximum before", three_places(state.before), style.MUTED, top + 0.47),
        ("old sum times", f"{state.rescale:.3f}", style.INK, floor + 0.4),
        ("sum", three_places(state.total), style.GREEN, floor + 0.75),
    ]
    for name, value, color, y in lines:
        ax.note(x, y, name)
        ax.put(x, y + 0.16, value, style.BODY, color, weight="bold")
    words = f"{state.end} of {count} scores"
    ax.note(left, bottom + 0.16, words)
    kept, before, total = map(three_places, (state.maximum, state.before, state.total))
    page.say(
        f"{words} have come, the last from place {state.start} on: maximum {kept}, before "
        f"{before}; the old sum times {state.rescale:.3f}; sum {total}"
    )
    return page.figure


def three_places(value: float) -> str:
    """A number for a picture; infinity as a sign."""
    if math.isinf(value):
        return "-∞" if value < 0 else "∞"
    return f"{value:.3f}"
