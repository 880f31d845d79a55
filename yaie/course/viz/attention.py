"""Attention: weights, heads, rotary tables and the online softmax."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page

# ---------------------------------------------------------------------------------- attention

MARGIN = 0.12


def draw_attention(
    weights: Any,
    keys: Sequence[str] | None = None,
    queries: Sequence[str] | None = None,
    causal: bool = True,
    cell: float = 0.42,
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
    queries = keys[-num_queries:] if queries is None else list(queries)
    for what, names, count in (("keys", keys, num_keys), ("queries", queries, num_queries)):
        if len(names) != count:
            raise ValueError(f"{what} must name the {count} {what}, got {len(names)}")
    side = min(cell, max(0.12, 7.5 / max(num_keys, num_queries)))
    shown_keys = [style.shorten(style.token_label(key), 1.1) for key in keys]
    shown_queries = [style.shorten(style.token_label(query), 1.1) for query in queries]
    names = max(style.text_width(query) for query in shown_queries)
    left = MARGIN + 0.1 + max(names, style.text_width("queries ↓", style.SMALL))
    top = MARGIN + 0.25 + max(style.text_width(key) for key in shown_keys)
    width = max(left + num_keys * side + MARGIN, 2.4)
    page = Page(width, top + num_queries * side + MARGIN)
    grid = page.grid(left, top, side, side, min(0.02, side * 0.08))
    past = num_keys - num_queries
    for i, j in np.ndindex(weights.shape):
        _draw_weight(grid, i, j, weights[i, j], causal and j > i + past)
    every = 1 if side >= 0.17 else int(np.ceil(0.17 / side))
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


def _draw_weight(grid: Grid, row: int, column: int, weight: float, future: bool) -> None:
    if future and weight == 0:
        look = {"edge": style.tint(style.INK, 0.14), "line": 0.0, "hatch": "/////"}
        grid.cell(row, column, style.WASH, **look)
        return
    level = float(np.clip(weight, 0.0, 1.0)) if np.isfinite(weight) else 0.0
    label = "1" if weight >= 0.995 else f"{weight:.2f}".replace("0.", ".")
    grid.cell(
        row,
        column,
        matplotlib.colormaps["Blues"](0.04 + 0.9 * level),
        label if grid.width >= 0.34 else "",
        size=7,
        color=style.PAPER if level > 0.55 else style.INK,
        edge=style.VERMILION if future else style.FAINT,
        line=1.8 if future else 0.5,
        zorder=3 if future else 2,
    )


# ---------------------------------------------------------------------------------- heads


def draw_head_groups(heads: tuple[int, int], bytes_per_token: int | None = None) -> Figure:
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
        words += f": {bytes_per_token:,} bytes per token"
    width = max(num_heads * pitch, style.text_width(words, style.SMALL)) + 2 * MARGIN
    page = Page(width, 1.75)
    group, size = num_heads // num_kv_heads, pitch * 0.76
    for head in range(num_heads):
        color = style.series_color(head // group)
        x, kv_x = (MARGIN + (h + 0.5) * pitch for h in (head, (head // group + 0.5) * group - 0.5))
        page.plot([x, kv_x], [0.3, 1.05], color=style.tint(color, 0.6), lw=1.4, zorder=1)
        page.ax.add_artist(Circle((x, 0.28), size / 2, color=style.tint(color, 0.75), zorder=2))
        if head % group == 0:
            face = style.tint(color, 0.75)
            page.box(kv_x - size / 2, 1.0, size, 0.26, face, radius=0.03, zorder=2)
        if size >= 0.2:
            page.put(x, 0.285, str(head), 7, ha="center")
            if head % group == 0:
                page.put(kv_x, 1.135, str(head // group), 7, ha="center")
    page.note(MARGIN, 1.55, words)
    page.say(f"{words}; {style.count(group, 'query head')} for each KV head")
    return page.figure


# ---------------------------------------------------------------------------------- rotary


DIALS, ARROWS = 6, 8  # at most so many pairs are drawn as dials, and positions as arrows


def draw_rotary(cos: Any, sin: Any) -> Figure:
    """Draw rotary tables: how far each pair of dimensions turns as the position grows.

    Above, one dial for some of the pairs, with one arrow for each position. Below, the angle of
    every pair at every position.

    Args:
        cos, sin: `[positions, pairs]`, for example a learner's tables.
    """
    cos, sin = style.numbers(cos, "cos", 2), style.numbers(sin, "sin", 2)
    if cos.shape != sin.shape:
        raise ValueError(f"cos and sin must have one shape, got {cos.shape} and {sin.shape}")
    num_positions, num_pairs = cos.shape
    num_dials, num_arrows = min(DIALS, num_pairs), min(ARROWS, num_positions)
    page = Page(style.WIDTH, 4.75)
    pitch = (page.width - 2 * MARGIN) / max(num_dials, 4)
    radius = min(0.62, pitch * 0.42)
    # The first pairs turn fastest and differ most, so more of them are shown.
    spread = np.linspace(0, 1, num_dials) ** 2 * (num_pairs - 1)
    pairs = np.unique(spread.round().astype(int))
    page.note(MARGIN, 0.15, f"positions 0 (black) to {num_arrows - 1} (palest)")
    for i, pair in enumerate(pairs):
        center = (MARGIN + (i + 0.5) * pitch, 0.45 + radius)
        _draw_dial(page, center, radius, cos[:num_arrows, pair], sin[:num_arrows, pair])
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
    page: Page, center: tuple[float, float], radius: float, cos: np.ndarray, sin: np.ndarray
) -> None:
    page.ax.add_artist(Circle(center, radius, facecolor=style.WASH, edgecolor=style.FAINT))
    for index in reversed(range(len(cos))):
        tip = center[0] + radius * cos[index], center[1] - radius * sin[index]
        strength = 1.0 - 0.8 * index / max(1, len(cos) - 1)
        color = style.INK if index == 0 else style.tint(style.BLUE, strength)
        page.arrow(center, tip, color, linewidth=1.6, zorder=4 if index else 5)


def _draw_angles(page: Page, angles: np.ndarray, top: float) -> None:
    left, width, height = 0.75, page.width - 0.75 - 1.15, page.height - top - 0.55
    ax = page.chart(left, top, width, height)
    scale = {"cmap": "twilight", "vmin": 0, "vmax": 2 * np.pi}
    image = ax.imshow(angles.T, aspect="auto", interpolation="nearest", **scale)
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

HEIGHT = 1.05  # inches of each of the two charts


@dataclass(frozen=True)
class OnlineStep:
    """One row after a tile was taken in.

    Attributes:
        scores: the whole row, including the part that has not come yet.
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
        """What the sum before this tile has to be multiplied by."""
        return math.exp(self.before - self.maximum) if self.before > -math.inf else 0.0


def record_online(state: Any, scores: Sequence[float], values: Any, tile: int) -> list[OnlineStep]:
    """Feed one row to an empty `OnlineSoftmax` of rows (1,), `tile` scores at a time.

    Args:
        state: is changed; any class with `update`, `maximum` and `total`.
        scores: one number per key.
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


def draw_online(state: OnlineStep) -> Figure:
    """Draw the scores with the running maximum, and below them the exponentials that are summed."""
    count, end, maximum = len(state.scores), state.end, state.maximum
    bar, left, top = min(0.23, 2.85 / count), 0.34, 0.34  # inches
    page = Page(left + count * bar + 1.39, 2 * HEIGHT + 1.0)
    second = top + HEIGHT + 0.4
    tile = (end - state.start) * bar
    page.rect(left + state.start * bar, top - 0.05, tile, 2 * HEIGHT + 0.5, style.WASH)
    page.note(0.14, 0.16, "scores")
    page.note(0.14, second - 0.16, "exp(score - maximum)")
    scores, weights = (
        page.chart(left, y, count * bar, HEIGHT, left=False, bottom=False) for y in (top, second)
    )
    seen = [score for score in state.scores if math.isfinite(score)]
    scores.set(xlim=(-0.5, count - 0.5), ylim=(min([*seen, 0.0]), 1.08 * max([*seen, 1.0])))
    weights.set(xlim=(-0.5, count - 0.5), ylim=(0, 1.4))
    for ax in (scores, weights):
        ax.axhline(0, color=style.FAINT, lw=0.8)
    for i, score in enumerate(state.scores):
        if not math.isfinite(score):
            scores.put(i, 0.0, "-∞", 6, style.MUTED, "center", "bottom")
            continue
        scores.bar(i, score, 0.75, color=style.BLUE if i < end else style.FAINT)
        if i < end and math.isfinite(maximum):
            color = style.GREEN if i >= state.start else style.tint(style.GREEN, 0.45)
            weights.bar(i, math.exp(min(score - maximum, 0.3)), 0.75, color=color)
    if math.isfinite(maximum):
        scores.plot([-0.5, end - 0.5], [maximum] * 2, color=style.VERMILION, lw=1.4)
    x = left + count * bar + 0.15
    lines = [
        ("maximum", three_places(maximum), style.VERMILION, top + 0.12),
        ("maximum before", three_places(state.before), style.MUTED, top + 0.47),
        ("old sum times", f"{state.rescale:.3f}", style.INK, second),
        ("sum", three_places(state.total), style.GREEN, second + 0.35),
    ]
    for name, value, color, y in lines:
        page.note(x, y, name)
        page.put(x, y + 0.16, value, style.BODY, color, weight="bold")
    words = f"{end} of {count} scores"
    page.note(left, page.height - 0.1, words)
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
