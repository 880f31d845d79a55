"""Several ranks and drafted tokens: heads, matrices, passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page
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


def draw_head_shares(shares: HeadShares) -> Figure:
    """Draw the model's heads above, and below them those that each rank holds, in its color.

    A KV head that several ranks hold shows as often; a head that no rank has stays empty above.
    """
    group = shares.num_heads / max(1, shares.num_kv_heads)
    left = MARGIN + style.text_width("query heads") + 0.2
    row, pitch = 0.46, CELL + GAP
    rows = 2 + len(shares.ranks)
    page = Page(left + MARGIN + shares.num_heads * pitch, 0.37 + rows * row)
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
        page.box(MARGIN, wide.middle(first) - 0.09, 0.14, 0.14, tint(series_color(rank), 0.45))
        page.put(MARGIN + 0.22, wide.middle(first), f"rank {rank}", weight="bold")
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


def draw_matrices(rows: Sequence[tuple[str, Sequence[Matrix | str]]]) -> Figure:
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
    page = Page(WIDTH, sum(tall) + len(rows) * 0.72 + 0.3)
    key = "blue: above 0, red: below, white: 0; all matrices have one scale"
    page.note(MARGIN, page.height - 0.14, key)
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
            page.put(x, y + 0.43, item.name, SMALL)
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


# ---------------------------------------------------------------------------------- cuts

UNIT, BETWEEN = 0.085, 0.34  # inches: a row or column of a matrix, and between two matrices


@dataclass(frozen=True)
class Cuts:
    """An MLP of two layers over several ranks, each of which has an equal part of both.

    Attributes:
        tokens, hidden, inner: sizes of x [tokens, hidden] and of what lies between the layers.
        ranks: how many; `inner` is a multiple.
    """

    tokens: int
    hidden: int
    inner: int
    ranks: int


def draw_cuts(cuts: Cuts) -> Figure:
    """Draw x @ up.T and then @ down.T, to scale: what a color covers, its rank alone holds.

    The weights lie as the product needs them, transposed: outputs from left to right.
    """
    if cuts.inner % cuts.ranks:
        raise ValueError(f"inner must be a multiple of {cuts.ranks} ranks, got {cuts.inner}")
    tokens, hidden, inner = cuts.tokens, cuts.hidden, cuts.inner
    signs = ["@", "=", "@", "=", *["+"] * (cuts.ranks - 1), "="]
    height = max(hidden, inner) * UNIT
    names = ["x", "up.T: by columns", "inner", "down.T: by rows"]
    shapes = [(tokens, hidden), (hidden, inner), (tokens, inner), (inner, hidden)]
    names += [*(f"rank {rank}'s: summand" for rank in range(cuts.ranks)), "all-reduce: sum"]
    shapes += [(tokens, hidden)] * (cuts.ranks + 1)
    labels = [name.split(": ") for name in names]
    widths = [
        max(columns * UNIT, *(style.text_width(word, 6.5) for word in words))
        for words, (_, columns) in zip(labels, shapes, strict=True)
    ]
    page = Page(2 * MARGIN + sum(widths) + len(signs) * BETWEEN, height + 1.05)
    page.legend(MARGIN, 0.17, {f"rank {r}": _of_rank(r) for r in range(cuts.ranks)})
    x, middle, part = MARGIN, 0.62 + height / 2, inner // cuts.ranks
    for number, (words, (rows, columns)) in enumerate(zip(labels, shapes, strict=True)):
        left = x + (widths[number] - columns * UNIT) / 2
        grid = page.grid(left, middle - rows * UNIT / 2, UNIT, UNIT)
        grid.area((0, rows), (0, columns), style.WASH)
        for rank in range(cuts.ranks):
            own = rank * part, (rank + 1) * part
            if number in (1, 2):
                grid.area((0, rows), own, _of_rank(rank), edge=style.PAPER)
            elif number == 3:
                grid.area(own, (0, columns), _of_rank(rank), edge=style.PAPER)
            elif number == 4 + rank:
                grid.area((0, rows), (0, columns), _of_rank(rank))
        grid.area((0, rows), (0, columns), edge=INK, line=0.8)
        for line, word in enumerate(words):
            y = grid.top - 0.1 - 0.15 * (len(words) - 1 - line)
            page.put(grid.x(columns / 2), y, word, 6.5, ha="center")
        page.note(grid.x(columns / 2), grid.y(rows) + 0.11, f"{rows} × {columns}", "center")
        x += widths[number] + BETWEEN
        if number < len(signs):
            page.put(x - BETWEEN / 2, middle, signs[number], 11, ha="center")
    page.say(
        f"The input x, {tokens} × {hidden}, times up.T, {hidden} × {inner}: each of {cuts.ranks} "
        f"ranks has {part} of its columns and computes the same columns of the inner result. "
        f"Times down.T, {inner} × {hidden}: each rank has the {part} rows that these columns need "
        "and computes a summand of the whole result; an all-reduce adds the summands"
    )
    return page.figure


def _of_rank(rank: int) -> tuple[float, float, float]:
    return tint(series_color(rank), 0.6)


# ---------------------------------------------------------------------------------- speculation


def draw_speculation(
    rounds: Sequence[tuple[Sequence, Sequence]],
    decode: Callable[[list], str] = lambda ids: str(ids[0]),
    max_rounds: int = 24,
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
    page = Page(WIDTH, 0.65 + (len(shown) + bool(more)) * 0.36)
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
