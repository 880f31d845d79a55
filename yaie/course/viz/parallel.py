"""Several ranks and drafted tokens: heads, matrices, passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page, Place
from yaie.course.viz.style import BLUE, FAINT, GREEN, INK, MUTED, SMALL, WIDTH, series_color, tint

# ---------------------------------------------------------------------------------- parallel

MARGIN = 0.12
CELL, GAP = 0.3, 0.08  # of a head, and between two of them


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
    left = MARGIN + style.text_width("query heads") + 0.2
    row, pitch = 0.46, CELL + GAP
    rows = 2 + len(shares.ranks)
    page = Page(left + MARGIN + shares.num_heads * pitch, 0.37 + rows * row, at)
    wide = page.grid(left, 0.16, group * pitch, row, GAP, row - CELL)
    narrow = page.grid(left, 0.16, pitch, row, GAP, row - CELL)
    page.say(f"{shares.num_heads} query heads and {shares.num_kv_heads} KV heads over ranks")
    kinds = (("query heads", narrow, shares.num_heads), ("KV heads", wide, shares.num_kv_heads))
    for kind, (name, grid, count) in enumerate(kinds):
        page.put(MARGIN, grid.middle(kind), name, weight="bold")
        for head in range(count):
            ranks = [rank for rank, heads in enumerate(shares.ranks) if head in heads[kind]]
            _draw_head(grid, kind, kind + 1, head, ranks)
    for rank, (queries, keys) in enumerate(shares.ranks):
        first = 2 + rank
        page.put(
            MARGIN, wide.middle(first), f"rank {rank}", color=series_color(rank), weight="bold"
        )
        for head in queries:
            _draw_head(narrow, first, first + 0.78, head, [rank])
        for head in keys:
            _draw_head(wide, first + 0.5, first + 1.13, head, [rank], named=False)
        page.say(
            f"Rank {rank}: query heads {style.some(queries, 16) or 'none'}; KV heads "
            f"{style.some(keys, 16) or 'none'}"
        )
    return page.figure


def _draw_head(
    grid: Grid, top: float, bottom: float, head: int, ranks: Sequence[int], named: bool = True
) -> None:
    """A head in the colors of the ranks that hold it; empty if no rank does."""
    width = (1 - grid.gap / grid.width) / max(1, len(ranks))
    for i, rank in enumerate(ranks):
        spans = (top, bottom), (head + i * width, head + (i + 1) * width + grid.gap / grid.width)
        grid.area(*spans, tint(series_color(rank), 0.45))
    edge, words = INK if ranks else FAINT, str(head) if named else ""
    grid.area((top, bottom), (head, head + 1), text=words, size=7.0, edge=edge)


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
        x, said = MARGIN, []
        for item in items:
            if isinstance(item, str):
                page.put(x + 0.16, y + 0.55 + height / 2, item, 13, ha="center")
                x += 0.36
                said.append(item)
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
            said.append("{} ({} × {})".format(item.name, *array.shape))
        page.say(f"{title}: {' '.join(said)}")
        y += height + 0.72
    return page.figure


# ---------------------------------------------------------------------------------- speculation


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
    kept = [_agreed(*one) for one in rounds]
    shown = list(zip(rounds[:max_rounds], kept, strict=False))
    more = len(rounds) - len(shown)
    page = Page(WIDTH, 0.65 + (len(shown) + bool(more)) * 0.36, at)
    kinds = {"drafted and kept": GREEN, "drafted in vain": FAINT, "the model's own": BLUE}
    page.legend(MARGIN, 0.2, {words: tint(color, 0.45) for words, color in kinds.items()})
    for number, ((draft, accepted), agreed) in enumerate(shown):
        y = 0.45 + number * 0.36
        page.put(MARGIN, y + 0.13, f"pass {number + 1}", color=MUTED)
        x = _draw_tokens(page, 1.0, y, accepted[:agreed], GREEN, decode)
        x = _draw_tokens(page, x, y, accepted[agreed:], BLUE, decode)
        _draw_tokens(page, x + 0.15, y, draft[agreed:], FAINT, decode)
    if more:
        page.put(MARGIN, page.height - 0.33, f"and {more} more", color=MUTED)
    page.say(
        f"Passes of the model: {len(rounds)}, for {sum(len(a) for _, a in rounds)} tokens; "
        f"{sum(kept)} of {sum(len(d) for d, _ in rounds)} drafted tokens were kept, by pass: "
        f"{style.some(kept, 24)}"
    )
    return page.figure


def _agreed(draft: Sequence, accepted: Sequence) -> int:
    """How many tokens from the first on are the same."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(draft, accepted, strict=False))
    return sum(1 for _ in same)


def _draw_tokens(
    page: Page, x: float, y: float, tokens: Sequence, color: str, decode: Callable[[list], str]
) -> float:
    """Draw the tokens that fit on the line; return where the next one goes."""
    for token in tokens:
        text = style.shorten(style.token_label(decode([token])), 1.4)
        width = style.text_width(text) + 0.14
        if x + width > WIDTH - MARGIN:
            break
        ink = MUTED if color == FAINT else INK
        page.cell(
            x, y, width, 0.26, text, tint(color, 0.45), color, 0.8, size=style.BODY, color=ink
        )
        x += width + 0.06
    return x
