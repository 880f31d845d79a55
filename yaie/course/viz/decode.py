"""A decode step through a block table: rows of a tile, blocks, partial results, a merge."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page

MARGIN, LEFT = 0.14, 0.95
CELL, HEIGHT = 0.42, 0.3  # inches of a block
COLUMNS = 20  # of the pool
TABLE, POOL = 1.2, 2.1  # where the rows of cells begin
BOX = (1.6, 0.5)


@dataclass(frozen=True)
class SplitRead:
    """What the program of one split did.

    Attributes:
        begin, end: its keys; the same if it has none.
        blocks: of the pool, in the order in which they were read.
        lse, out: what it left for one query head: the log-sum-exp, the first number of the output.
    """

    begin: int
    end: int
    blocks: tuple[int, ...]
    lse: float
    out: float


@dataclass(frozen=True)
class DecodeStep:
    """One query of one sequence, for one KV head.

    Attributes:
        heads: the query heads that share the KV head: rows of a tile.
        table: the sequence's row of the block tables, as far as it is drawn.
        splits: in their order.
        num_blocks: of the pool.
        lse, out: merged.
    """

    heads: Sequence[int]
    table: Sequence[int]
    splits: Sequence[SplitRead]
    num_blocks: int
    lse: float
    out: float


def draw_decode(state: DecodeStep) -> Figure:
    """Draw rows → table → blocks → partial results → merge, from above; a color is a split."""
    pool_rows = -(-state.num_blocks // COLUMNS)
    parts_top = POOL + pool_rows * (HEIGHT + 0.1) + 0.5
    merge_top = parts_top + BOX[1] + 0.5
    page = Page(LEFT + COLUMNS * CELL + MARGIN, merge_top + BOX[1] + MARGIN)
    rows = page.grid(LEFT, 0.24, CELL, HEIGHT, 0.04, 0)
    pool = page.grid(LEFT, POOL, CELL, HEIGHT + 0.1, 0.04, 0.1)
    for name, y in (
        ("rows", rows.middle(0)),
        ("table", TABLE + HEIGHT / 2),
        ("pool", POOL + HEIGHT / 2),
        ("parts", parts_top + BOX[1] / 2),
        ("merged", merge_top + BOX[1] / 2),
    ):
        page.put(MARGIN, y, name, weight="bold")
    for row, head in enumerate(state.heads):
        rows.cell(0, row, style.tint(style.SKY, 0.3), f"q {head}", radius=0.03)
    words = "query heads of one KV head: the rows of a tile, which the program of every split has"
    page.note(rows.x(len(state.heads)) + 0.1, rows.middle(0), words)
    _pool(pool, state)
    room = (page.width - LEFT - MARGIN) / len(state.splits)
    middle = LEFT + (page.width - LEFT - MARGIN) / 2
    unread = list(state.table[sum(len(split.blocks) for split in state.splits) :])
    last = max((n for n, split in enumerate(state.splits) if split.blocks), default=0)
    for number, split in enumerate(state.splits):
        x = LEFT + (number + 0.5) * room
        _entries(page, pool, split, number, x, len(unread) if number == last else 0)
        _part(page, pool, state, number, x, parts_top)
        _share(page, (x, parts_top + BOX[1]), (middle, merge_top), split.lse - state.lse)
    name = f"query head {state.heads[0]}"
    _result(page, middle, merge_top, name, state.lse, state.out, style.WASH, style.FAINT)
    if unread:
        page.note(page.width - MARGIN, TABLE - 0.46, "?: past the context, never loaded", "right")
    _say(page, state)
    return page.figure


def _pool(pool: Grid, state: DecodeStep) -> None:
    colors = {
        block: style.series_color(number)
        for number, split in enumerate(state.splits)
        for block in split.blocks
    }
    for block in range(state.num_blocks):
        face = style.tint(colors[block], 0.6) if block in colors else style.WASH
        ink = style.INK if block in colors else style.MUTED
        pool.cell(*divmod(block, COLUMNS), face, str(block), color=ink, radius=0.03)


def _entries(page: Page, pool: Grid, split: SplitRead, number: int, x: float, unread: int) -> None:
    """The entries of the table that a split reads, and a line from each to its block."""
    color = style.series_color(number)
    has = f"keys {split.begin} to {split.end - 1}" if split.blocks else "no keys"
    page.put(x, TABLE - 0.14, f"split {number}: {has}", style.SMALL, ha="center")
    left = x - (len(split.blocks) + unread) * CELL / 2
    grid = page.grid(left, TABLE, CELL, HEIGHT, 0.04, 0)
    for column, block in enumerate(split.blocks):
        grid.cell(0, column, style.tint(color, 0.6), str(block), radius=0.03)
        row, place = divmod(block, COLUMNS)
        ends = [grid.x(column + 0.5) - 0.02, pool.x(place + 0.5) - 0.02]
        depths = [TABLE + HEIGHT + 0.02, pool.y(row) - 0.02]
        page.plot(ends, depths, color=style.tint(color, 0.7), lw=1.1, zorder=0)
    for column in range(len(split.blocks), len(split.blocks) + unread):
        grid.cell(0, column, style.WASH, "?", color=style.MUTED, radius=0.03)


def _part(page: Page, pool: Grid, state: DecodeStep, number: int, x: float, top: float) -> None:
    """What a split leaves, below the blocks that it has read."""
    split, color = state.splits[number], style.series_color(number)
    for block in split.blocks:
        row, place = divmod(block, COLUMNS)
        ends = [pool.x(place + 0.5) - 0.02, x], [pool.y(row) + HEIGHT + 0.02, top - 0.02]
        page.plot(*ends, color=style.tint(color, 0.7), lw=1.1, zorder=0)
    face, edge = style.tint(color, 0.18), style.tint(color, 0.6)
    _result(page, x, top, f"split {number}", split.lse, split.out, face, edge)


def _share(page: Page, start: tuple[float, float], end: tuple[float, float], log: float) -> None:
    """A line, and on it the share that a part has in what it is merged to."""
    (x, y), (to_x, to_y) = start, end
    page.plot([x, to_x], [y, to_y], color=style.FAINT, lw=1.2, zorder=0)
    x, y = (x + to_x) / 2, (y + to_y) / 2
    page.box(x - 0.2, y - 0.09, 0.4, 0.18, style.PAPER, radius=0.04, zorder=1)
    page.put(x, y, f"{math.exp(log):.0%}", style.SMALL, style.VERMILION, "center", zorder=2)


def _result(
    page: Page, x: float, top: float, name: str, lse: float, out: float, face: object, edge: object
) -> None:
    page.box(x - BOX[0] / 2, top, *BOX, face, edge)
    page.note(x, top + 0.15, name, "center")
    page.put(x, top + 0.35, f"lse {_number(lse)}, out {_number(out)}", style.SMALL, ha="center")


def _number(x: float) -> str:
    return f"{x:.3f}" if math.isfinite(x) else "−∞"


def _say(page: Page, state: DecodeStep) -> None:
    page.say(
        f"Query heads {style.some(state.heads)} are the rows of a tile; a pool of "
        f"{style.count(state.num_blocks, 'block')}"
    )
    for number, split in enumerate(state.splits):
        share = f"{math.exp(split.lse - state.lse):.0%}"
        read = (
            f"reads keys {split.begin} to {split.end - 1} in blocks {style.some(split.blocks)}"
            if split.blocks
            else "has no keys"
        )
        page.say(f"Split {number} {read}: lse {_number(split.lse)}, share {share}")
    page.say(f"Merged: lse {_number(state.lse)}, out {_number(state.out)}")
