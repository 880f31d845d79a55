"""Which thread block reads which block of the pool."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.14
LEFT = 1.75
CELL = 0.3, 0.24
TOP = 0.56


@dataclass(frozen=True)
class Readers:
    """A launch.

    Attributes:
        names: of the thread blocks.
        owners: for each, the number of its sequence, which gives it its color.
        reads: for each, the blocks of the pool that it reads.
        num_blocks: of the pool.
    """

    names: tuple[str, ...]
    owners: tuple[int, ...]
    reads: tuple[frozenset[int], ...]
    num_blocks: int


def draw_readers(state: Readers, at: style.Place | None = None) -> Figure:
    """Draw a row for each thread block, a column for each block, and how often each is read."""
    rows = len(state.names)
    page = style.Page(LEFT + state.num_blocks * CELL[0] + MARGIN, TOP + rows * CELL[1] + 0.42, at)
    ax = page.ax
    style.put(ax, MARGIN, 0.18, style.count(rows, "thread block"), style.BODY, weight="bold")
    style.put(ax, LEFT - 0.1, TOP - 0.14, "block of the pool", style.SMALL, style.MUTED, "right")
    bottom = TOP + rows * CELL[1] + 0.14
    style.put(ax, LEFT - 0.1, bottom, "times read", style.SMALL, style.MUTED, "right")
    for block in range(state.num_blocks):
        middle = LEFT + (block + 0.5) * CELL[0]
        count = sum(block in reads for reads in state.reads)
        style.put(ax, middle, TOP - 0.14, str(block), style.SMALL, style.MUTED, "center")
        style.put(ax, middle, bottom, str(count) if count else "·", style.SMALL,
                  style.INK if count else style.FAINT, "center", weight="bold")  # fmt: skip
    for row, (name, owner, reads) in enumerate(
        zip(state.names, state.owners, state.reads, strict=True)
    ):
        y = TOP + row * CELL[1]
        style.put(ax, LEFT - 0.1, y + CELL[1] / 2 - 0.02, name, style.SMALL, ha="right")
        for block in range(state.num_blocks):
            face = style.WASH
            if block in reads:
                face = style.tint(style.series_color(owner), 0.8)
            x = LEFT + block * CELL[0]
            style.box(ax, x, y, CELL[0] - 0.04, CELL[1] - 0.04, face, radius=0.02)
    times = sum(map(len, state.reads))
    blocks = style.count(len(frozenset().union(*state.reads)), "block")
    page.say(f"{style.count(rows, 'thread block')} read {blocks} of the pool, {times} times in all")
    each = (f"{n}: {style.some(sorted(r))}" for n, r in zip(state.names, state.reads, strict=True))
    page.say("; ".join(each))
    return page.figure
