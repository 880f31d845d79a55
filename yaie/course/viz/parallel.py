"""Several ranks and drafted tokens: heads, matrices, passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place
from yaie.course.viz.style import BLUE, FAINT, GREEN, INK, MUTED, SMALL, WIDTH, series_color, tint

# ---------------------------------------------------------------------------------- parallel

MARGIN = 0.12
CELL, GAP = 0.3, 0.08


@dataclass(frozen=True)
class HeadShares:
    """The heads of every rank: `(query heads, KV heads)` each."""

    num_heads: int
    num_kv_heads: int
    ranks: Sequence[tuple[Sequence[int], Sequence[int]]]


def draw_head_shares(shares: HeadShares, at: Place | None = None) -> Figure:
    """Draw the model's heads above, and below them those that each rank holds, in its color.

    A KV head that several ranks hold shows as often; a head that no rank has stays empty above.
    """
    group = shares.num_heads / max(1, shares.num_kv_heads)
    label = style.text_width("query heads") + 0.2
    pitch = CELL + GAP
    width = 2 * MARGIN + label + shares.num_heads * pitch
    rows = 2 + len(shares.ranks)
    page = Page(width, 0.25 + rows * 0.46 + 0.12, at)
    for row, name in ((0, "query heads"), (1, "KV heads")):
        page.put(MARGIN, 0.31 + row * 0.46, name, weight="bold")
    owners: dict[tuple[int, int], list[int]] = {}
    for rank, (queries, keys) in enumerate(shares.ranks):
        for row, heads in ((0, queries), (1, keys)):
            for head in heads:
                owners.setdefault((row, head), []).append(rank)
    left = MARGIN + label
    for row, count, span in ((0, shares.num_heads, 1.0), (1, shares.num_kv_heads, group)):
        for head in range(count):
            x, y = left + head * span * pitch, 0.16 + row * 0.46
            _head(page, x, y, span * pitch - GAP, head, owners.get((row, head), []))
    for rank, (queries, keys) in enumerate(shares.ranks):
        y = 0.16 + (2 + rank) * 0.46
        color = series_color(rank)
        page.put(MARGIN, y + 0.15, f"rank {rank}", color=color, weight="bold")
        for head in queries:
            _head(page, left + head * pitch, y, CELL, head, [rank], 0.2)
        for head in keys:
            x = left + head * group * pitch
            _head(page, x, y + 0.23, group * pitch - GAP, head, [rank], 0.13)
    page.say(f"{shares.num_heads} query heads and {shares.num_kv_heads} KV heads over ranks")
    for rank, (queries, keys) in enumerate(shares.ranks):
        page.say(
            f"Rank {rank}: query heads {style.some(queries, 16) or 'none'}; KV heads "
            f"{style.some(keys, 16) or 'none'}"
        )
    return page.figure


def _head(page, x, y, width, head, ranks, height=0.3) -> None:
    each = width / max(1, len(ranks))
    for i, rank in enumerate(ranks):
        face = tint(series_color(rank), 0.45)
        page.box(x + i * each, y, each, height, face=face, radius=0.0)
    page.box(x, y, width, height, edge=INK if ranks else FAINT, line=0.8)
    if height >= 0.2:
        page.put(x + width / 2, y + height / 2 + 0.01, str(head), 7.0, ha="center")


@dataclass(frozen=True)
class Matrix:
    """A matrix to show: its name, its numbers, and the rank that has it, if one alone has it."""

    name: str
    values: object
    rank: int | None = None


def draw_matrices(
    rows: Sequence[tuple[str, Sequence[Matrix | str]]], at: Place | None = None
) -> Figure:
    """Draw equations of matrices, one per row: names, numbers as colors, signs such as "+" between.

    All matrices have one scale of colors: white is 0.
    """
    arrays = {
        id(item): style.numbers(item.values, item.name, 2)
        for _, items in rows
        for item in items
        if isinstance(item, Matrix)
    }
    limit = max(float(np.abs(a).max()) for a in arrays.values()) or 1.0
    cell = 0.13
    tall = [
        max(arrays[id(i)].shape[0] for i in items if isinstance(i, Matrix)) * cell
        for _, items in rows
    ]
    page = Page(WIDTH, sum(tall) + len(rows) * 0.72 + 0.1, at)
    y = 0.0
    for (title, items), height in zip(rows, tall, strict=True):
        page.put(MARGIN, y + 0.2, title, 9.5, weight="bold")
        x = MARGIN
        for item in items:
            if isinstance(item, str):
                page.put(x + 0.16, y + 0.55 + height / 2, item, 13, ha="center")
                x += 0.36
                continue
            array = arrays[id(item)]
            color = INK if item.rank is None else series_color(item.rank)
            page.put(x, y + 0.43, item.name, SMALL, color=color)
            ax = page.axes(x, y + 0.55, array.shape[1] * cell, array.shape[0] * cell)
            ax.imshow(array, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
            ax.set(xticks=[], yticks=[])
            for spine in ax.spines.values():
                spine.set(color=color, linewidth=1.6)
            x += max(array.shape[1] * cell, style.text_width(item.name, SMALL)) + 0.22
        y += height + 0.72
    for title, items in rows:
        signs = (
            item
            if isinstance(item, str)
            else "{} ({} × {})".format(item.name, *arrays[id(item)].shape)
            for item in items
        )
        page.say(f"{title}: {' '.join(signs)}")
    return page.figure


# ---------------------------------------------------------------------------------- speculation

LINE, HIGH, SPECULATION_GAP = 0.36, 0.26, 0.06
WIDEST = 1.4


def draw_speculation(
    rounds: Sequence[tuple[Sequence, Sequence]],
    decode: Callable[[list], str] = lambda ids: str(ids[0]),
    max_rounds: int = 24,
    at: Place | None = None,
) -> Figure:
    """Draw passes, one per line: the drafted tokens that were kept, those that were not, and the
    model's own choice.

    Args:
        rounds: `(draft, accepted)` of each pass.
        decode: the text of `[token]`.
    """
    shown = list(rounds[:max_rounds])
    more = len(rounds) - len(shown)
    page = Page(WIDTH, 0.55 + (len(shown) + bool(more)) * LINE + 0.1, at)
    x = MARGIN
    for name, color in (
        ("drafted and kept", GREEN),
        ("drafted in vain", FAINT),
        ("the model's own", BLUE),
    ):
        page.box(x, 0.1, 0.2, 0.18, face=tint(color, 0.45), edge=color)
        page.note(x + 0.28, 0.2, name)
        x += 0.28 + style.text_width(name, SMALL) + 0.3
    for number, (draft, accepted) in enumerate(shown):
        y = 0.45 + number * LINE
        page.put(MARGIN, y + HIGH / 2, f"pass {number + 1}", color=MUTED)
        pairs = zip(draft, accepted, strict=False)
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        x = 1.0
        for token in accepted[:kept]:
            x = _token(page, x, y, decode([token]), GREEN)
        for token in accepted[kept:]:
            x = _token(page, x, y, decode([token]), BLUE)
        x += 0.15
        for token in draft[kept:]:
            x = _token(page, x, y, decode([token]), FAINT)
    if more:
        y = 0.45 + len(shown) * LINE
        page.put(MARGIN, y + HIGH / 2, f"and {more} more", color=MUTED)
    kept = [
        sum(
            1
            for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft, accepted, strict=False))
        )
        for draft, accepted in rounds
    ]
    page.say(
        f"Passes of the model: {len(rounds)}, for {sum(len(a) for _, a in rounds)} tokens; "
        f"{sum(kept)} of {sum(len(d) for d, _ in rounds)} drafted tokens were kept, by pass: "
        f"{style.some(kept, 24)}"
    )
    return page.figure


def _token(page, x: float, y: float, text: str, color) -> float:
    text = style.shorten(style.token_label(text), WIDEST)
    width = style.text_width(text) + 0.14
    if x + width > WIDTH - MARGIN:
        return x
    page.box(x, y, width, HIGH, face=tint(color, 0.45), edge=color, line=0.8)
    ink = MUTED if color == FAINT else INK
    page.put(x + width / 2, y + HIGH / 2 + 0.01, text, color=ink, ha="center")
    return x + width + SPECULATION_GAP
