"""From logits to a token: the likeliest tokens before and after each filter."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import HALO, Grid, Page

MARGIN = 0.12
ROW = 0.2
HEADER = 0.5
GAP = 0.3
SCALES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class Filter:
    """What one filter made of the logits of one token position.

    Attributes:
        name: such as "top-k 5".
        logits: `[vocab]`, as the filter returned them; -inf where it dropped a token.
        top_p: the threshold to draw against the running sum of the probabilities before.
        min_p: the threshold to draw, relative to the largest probability before.
    """

    name: str
    logits: Any
    top_p: float | None = None
    min_p: float | None = None


@dataclass(frozen=True)
class Stage:
    """Probabilities after one filter, of the shown tokens and of all others together."""

    name: str
    probabilities: tuple[float, ...]
    others: float
    num_kept: int
    top_p: float | None = None
    min_p: float | None = None


@dataclass(frozen=True)
class SamplingState:
    """A distribution on its way through the filters; tokens by falling probability."""

    labels: tuple[str, ...]
    stages: tuple[Stage, ...]
    vocab_size: int


def snapshot_sampling(
    filters: Sequence[Filter],
    decode: Callable[[list[int]], str] | None = None,
    num_tokens: int = 20,
) -> SamplingState:
    """Record the likeliest tokens of the first entry of `filters`, and what became of them.

    Args:
        filters: the logits as the model gave them, then after each filter in turn.
        decode: token ids to text; without it the ids themselves are shown.
        num_tokens: how many tokens to show; the rest is added up.
    """
    style.check_some(filters, "filters")
    distributions = [_softmax(entry.logits) for entry in filters]
    order = np.argsort(-distributions[0], kind="stable")[:num_tokens]
    stages = tuple(
        Stage(
            entry.name,
            tuple(float(p) for p in probabilities[order]),
            float(np.delete(probabilities, order).sum()),
            int((probabilities > 0).sum()),
            entry.top_p,
            entry.min_p,
        )
        for entry, probabilities in zip(filters, distributions, strict=True)
    )
    labels = tuple(str(int(t)) if decode is None else decode([int(t)]) for t in order)
    return SamplingState(labels, stages, len(distributions[0]))


def _softmax(logits: Any) -> np.ndarray:
    values = style.numbers(logits, "logits", 1)
    if not np.isfinite(values.max()):
        raise ValueError(f"logits must have a largest value that is finite, got {values.max()}")
    weights = np.exp(values - values.max())
    return weights / weights.sum()


# ---------------------------------------------------------------------------------- drawing


def draw_sampling(state: SamplingState, scale: float | None = None) -> Figure:
    """Draw one column for each stage, one row for each token.

    A blue bar is a token's probability after the stage; an outline is what it was before. The
    bars of tokens that have been dropped are gray. Where a stage has a `top_p`, a line shows the
    running sum of the probabilities before it, from 0 at the left to 1 at the right.

    Args:
        scale: the probability at the right end of every column; by default the largest, rounded
            up. A slider wants the same for all states.
    """
    labels = [style.token_label(label) for label in state.labels]
    label_width = min(1.5, max(style.text_width(label) for label in [*labels, "all others"]))
    left = MARGIN + label_width + 0.12
    columns = len(state.stages)
    width = min(2.4, (style.WIDTH - left - MARGIN - GAP * (columns - 1)) / columns)
    rows_height = ROW * (len(labels) + 1) + 0.08
    page_width = left + columns * width + (columns - 1) * GAP + MARGIN
    page = Page(page_width, HEADER + rows_height + 0.3)
    largest = max(max(stage.probabilities) for stage in state.stages)
    scale = scale or next(s for s in SCALES if s >= largest - 1e-9)
    survives = [p > 0 for p in state.stages[-1].probabilities]
    for i, stage in enumerate(state.stages):
        x = left + i * (width + GAP)
        grid = page.grid(x, HEADER + 0.19 * ROW, width / scale, ROW, 0.0, 0.38 * ROW)
        before = state.stages[i - 1] if i else None
        _draw_stage(page, grid, stage, before, scale, state.vocab_size)
        if i == 0:
            for row, (label, kept) in enumerate(zip(labels, survives, strict=True)):
                ink = style.INK if kept else style.MUTED
                grid.name(row, style.shorten(label, label_width), style.BODY, color=ink)
            if state.vocab_size > len(labels):
                grid.name(len(labels) + 0.4, "all others", color=style.MUTED)
        best = sorted(zip(stage.probabilities, state.labels, strict=True), reverse=True)[:3]
        said = (f"{style.quote(label)} {p:.3f}" for p, label in best if p)
        page.say(
            f"{stage.name}: {stage.num_kept:,} of {state.vocab_size:,} tokens, likeliest "
            f"{style.some(said)}"
        )
    return page.figure


def _draw_stage(
    page: Page, grid: Grid, stage: Stage, before: Stage | None, scale: float, vocab_size: int
) -> None:
    x, width, source = grid.left, grid.width * scale, before or stage
    page.put(x, 0.17, style.shorten(stage.name, width, 9.5, "bold"), 9.5, weight="bold")
    words = f"{stage.num_kept:,} of {vocab_size:,} tokens"
    page.note(x, 0.36, style.shorten(words, width, style.SMALL))
    count = len(stage.probabilities)
    bottom = HEADER + ROW * (count + 1) + 0.08
    page.plot([x, x], [HEADER, bottom], color=style.FAINT, lw=1.0)
    now = [*stage.probabilities, stage.others]
    old = [*source.probabilities, source.others] if before else [0.0] * len(now)
    for row, (p, was) in enumerate(zip(now, old, strict=True)):
        _draw_bar(grid, row + 0.4 * (row == count), p, was, scale)
    if stage.top_p is not None:
        _draw_running_sum(page, x, width, source, stage.top_p)
    if stage.min_p is not None:
        line = grid.x(stage.min_p * max(source.probabilities))
        page.plot([line] * 2, [HEADER - 0.03, bottom], color=style.VERMILION, lw=1.2)
        page.put(line, bottom + 0.1, f"{stage.min_p:g} × the largest", 7, style.VERMILION)


def _draw_bar(grid: Grid, row: float, p: float, old: float, scale: float) -> None:
    """A token's probability, and the outline of what it was before."""
    length, outline = min(p, scale), min(old, scale)
    if p > 0:
        grid.area((row, row + 1), (0, length), style.tint(style.BLUE, 0.7))
    if old:
        face, edge = ("none", style.INK) if p else (style.tint(style.INK, s) for s in (0.22, 0.35))
        grid.area((row, row + 1), (0, outline), face, edge=edge, line=0.7, zorder=3)
    if p >= 0.0005:
        end = grid.x(max(length, outline)) + 0.05
        label = f"{p:.3f}".lstrip("0") if p < 1 else "1"
        look = {"color": style.MUTED, "ha": "left", "path_effects": HALO}
        if end + style.text_width(label, 7) > grid.x(scale):
            end, look = grid.x(length), {"color": style.PAPER, "ha": "right"}
            if end - 0.1 - style.text_width(label, 7) < grid.x(outline) < end:
                end = grid.x(outline)  # left of the outline, which would cross the label
            end -= 0.05
        grid.ax.put(end, grid.middle(row), label, 7, zorder=6, **look)


def _draw_running_sum(page: Page, x: float, width: float, before: Stage, top_p: float) -> None:
    sums = np.cumsum(before.probabilities)
    edges = [HEADER + ROW * row for row in range(len(sums) + 1)]
    ys = [edge for pair in pairwise(edges) for edge in pair]
    xs = [x + width * s for s in np.repeat(sums, 2)]
    page.plot(xs, ys, color=style.ORANGE, lw=1.5, zorder=5)
    line, ends = x + width * top_p, [HEADER - 0.03, edges[-1]]
    page.plot([line] * 2, ends, color=style.VERMILION, lw=1.2, zorder=5)
    words = f"running sum reaches {top_p:g}"
    page.put(x + width, edges[-1] + ROW + 0.18, words, 7, style.VERMILION, "right")
