"""A row of scores that passes by in tiles, and what the online softmax keeps of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style

MARGIN = 0.14
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


def draw_online(state: OnlineStep, at: style.Place | None = None) -> Figure:
    """Draw the scores with the running maximum, and below them the exponentials that are summed."""
    count = len(state.scores)
    bar = min(0.23, CHART / count)
    gap = bar / 4
    left = MARGIN + 0.2
    width = left + count * bar + NUMBERS + MARGIN
    page = style.Page(width, 2 * HEIGHT + 1.0, at)
    ax = page.ax
    finite = [s for s in state.scores if math.isfinite(s)]
    low, high = min([*finite, 0.0]), max([*finite, 1.0])
    top, floor = 0.34, 0.34 + HEIGHT

    def height(score: float) -> float:
        return floor - (score - low) / (high - low) * HEIGHT * 0.92

    style.put(ax, MARGIN, 0.16, "scores", style.SMALL, style.MUTED)
    tile_x = left + state.start * bar - gap / 2
    tile_width = (state.end - state.start) * bar
    ax.add_artist(
        Rectangle((tile_x, top - 0.05), tile_width, 2 * HEIGHT + 0.5, facecolor=style.WASH)
    )
    zero = height(0.0)
    for i, score in enumerate(state.scores):
        x = left + i * bar
        if not math.isfinite(score):
            style.put(ax, x + (bar - gap) / 2, floor - 0.09, "-∞", 6, style.MUTED, "center")
            continue
        color = style.BLUE if i < state.end else style.FAINT
        y = height(score)
        ax.add_artist(
            Rectangle((x, min(y, zero)), bar - gap, max(abs(zero - y), 0.012), facecolor=color)
        )
    ax.plot([left, left + count * bar], [zero, zero], color=style.FAINT, lw=0.8)
    if math.isfinite(state.maximum):
        y = height(min(max(state.maximum, low), high))
        ax.plot([left, left + state.end * bar], [y, y], color=style.VERMILION, lw=1.4)
    bottom = floor + 0.4 + HEIGHT
    style.put(ax, MARGIN, floor + 0.24, "exp(score - maximum)", style.SMALL, style.MUTED)
    ax.plot([left, left + count * bar], [bottom, bottom], color=style.FAINT, lw=0.8)
    for i, score in enumerate(state.scores[: state.end]):
        if math.isfinite(score) and math.isfinite(state.maximum):
            weight = math.exp(min(score - state.maximum, 0.3))
            color = style.GREEN if i >= state.start else style.tint(style.GREEN, 0.45)
            tall = weight * HEIGHT * 0.72
            ax.add_artist(
                Rectangle((left + i * bar, bottom - tall), bar - gap, tall, facecolor=color)
            )
    x = left + count * bar + 0.15
    lines = [
        ("maximum", number(state.maximum), style.VERMILION, top + 0.12),
        ("maximum before", number(state.before), style.MUTED, top + 0.47),
        ("old sum times", f"{state.rescale:.3f}", style.INK, floor + 0.4),
        ("sum", number(state.total), style.GREEN, floor + 0.75),
    ]
    for name, value, color, y in lines:
        style.put(ax, x, y, name, style.SMALL, style.MUTED)
        style.put(ax, x, y + 0.16, value, style.BODY, color, weight="bold")
    words = f"{state.end} of {count} scores"
    style.put(ax, left, bottom + 0.16, words, style.SMALL, style.MUTED)
    kept, before, total = map(number, (state.maximum, state.before, state.total))
    page.say(
        f"{words} have come, the last from place {state.start} on: maximum {kept}, before "
        f"{before}; the old sum times {state.rescale:.3f}; sum {total}"
    )
    return page.figure


def number(value: float) -> str:
    """A number for a picture; infinity as a sign."""
    if math.isinf(value):
        return "-∞" if value < 0 else "∞"
    return f"{value:.3f}"
