"""Sequences that begin with the same blocks: what a decode step reads, and for how many rows."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.14
LEFT = 1.05
BLOCK = 0.42, 0.3
GAP = 0.07
TOP = 0.62


@dataclass(frozen=True)
class Prefix:
    """A batch.

    Attributes:
        tables: the blocks of each sequence.
        shared: how many blocks at the beginning of the tables are the same.
        rows: query heads of a sequence that share a KV head.
        once: whether the shared blocks are read once for all sequences.
    """

    tables: tuple[tuple[int, ...], ...]
    shared: int
    rows: int
    once: bool


def draw_prefix(state: Prefix, at: style.Place | None = None) -> Figure:
    """Draw a row of blocks for each sequence; what is read at once is one box, what is shared pink.

    Below: how many blocks are read, and how many rows of queries each part has to offer.
    """
    many, most = len(state.tables), max(map(len, state.tables))
    step = BLOCK[0] + GAP, BLOCK[1] + GAP
    width = LEFT + most * step[0] + 0.25 + MARGIN
    page = style.Page(max(width, 4.4), TOP + many * step[1] + 0.52, at)
    ax, split = page.ax, state.shared * step[0]
    own_left = LEFT + split + 0.25
    for i, table in enumerate(state.tables):
        y = TOP + i * step[1]
        color = style.series_color(i)
        style.put(ax, MARGIN, y + BLOCK[1] / 2, f"sequence {i}", style.SMALL, weight="bold")
        for j, block in enumerate(table):
            shared = j < state.shared
            if shared and state.once:
                continue
            x = (LEFT if shared else own_left - split) + j * step[0]
            face = style.tint(style.SHARED if shared else color, 0.35)
            style.box(ax, x, y, *BLOCK, face, style.tint(color, 0.9), radius=0.03)
            style.put(ax, x + BLOCK[0] / 2, y + BLOCK[1] / 2, str(block), style.SMALL, ha="center")
    if state.once:
        height = many * step[1] - GAP
        for j, block in enumerate(state.tables[0][: state.shared]):
            x = LEFT + j * step[0]
            face = style.tint(style.SHARED, 0.35)
            style.box(ax, x, TOP, BLOCK[0], height, face, style.SHARED, radius=0.03)
            style.put(ax, x + BLOCK[0] / 2, TOP + height / 2, str(block), style.SMALL, ha="center")
    own = sum(len(table) - state.shared for table in state.tables)
    read = own + state.shared * (1 if state.once else many)
    title = "shared blocks once" if state.once else "every context for itself"
    style.put(ax, MARGIN, 0.18, f"{title}: {style.count(read, 'block')} read", style.BODY,
              weight="bold")  # fmt: skip
    together, each = (state.rows * many, "in all") if state.once else (state.rows, "each")
    words = f"{style.count(together, 'row')} of queries {each}"
    style.put(ax, LEFT, TOP - 0.14, words, style.SMALL, style.MUTED)
    words = f"{style.count(state.rows, 'row')} each"
    style.put(ax, own_left, TOP - 0.14, words, style.SMALL, style.MUTED)
    distinct = own + state.shared
    note = f"{distinct} different blocks; each is read {read / distinct:.2g} times on average"
    style.put(ax, MARGIN, page.height - 0.18, note, style.SMALL, style.MUTED)
    page.say(f"{many} sequences that begin with the same {style.count(state.shared, 'block')}")
    page.say(
        f"{title}: {style.count(read, 'block')} read, the shared ones with "
        f"{style.count(together, 'row')} of queries {each}; {note}"
    )
    return page.figure
