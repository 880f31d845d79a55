"""Tensor cores: fragments, pipelines, and work that overlaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place
from yaie.course.viz.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    SMALL,
    VERMILION,
    WASH,
    series_color,
    tint,
)

# ---------------------------------------------------------------------------------- tensor core

MARGIN = 0.16
CELL_X, CELL_Y = 0.24, 0.17
Owners = Mapping[str, Sequence[Sequence[tuple[int, int]]]]


def draw_fragments(owners: Owners, lane: int = 5, at: Place | None = None) -> Figure:
    """Draw the tiles of one mma.sync, C beside A and below B, with the lane that holds each number.

    Args:
        owners: "A", "B" and "C" as rows of (lane, register).
        lane: whose numbers are marked, a color for each register.
    """
    a, b, c = (owners[name] for name in "ABC")
    gap = 0.42
    a_x, c_x = MARGIN, MARGIN + len(a[0]) * CELL_X + gap
    b_y, c_y = 0.42, 0.42 + len(b) * CELL_Y + gap
    page = Page(c_x + len(c[0]) * CELL_X + MARGIN, c_y + len(a) * CELL_Y + 0.34, at)
    for name, rows, x, y in (("A", a, a_x, c_y), ("B", b, c_x, b_y), ("C", c, c_x, c_y)):
        title = f"{name}: {len(rows)} × {len(rows[0])}"
        page.put(x, y - 0.12, title, SMALL, weight="bold")
        for i, row in enumerate(rows):
            for j, (holder, register) in enumerate(row):
                own = holder == lane
                face = series_color(register) if own else tint(INK, 0.05 + 0.05 * (holder // 4 % 2))
                left, top = x + j * CELL_X, y + i * CELL_Y
                page.box(left, top, CELL_X - 0.015, CELL_Y - 0.015, face, radius=0.02)
                spot = left + CELL_X / 2, top + CELL_Y / 2
                page.put(*spot, str(holder), 6, PAPER if own else INK, "center")
    words = f"each number says which lane holds it; lane {lane} in color, a color a register"
    page.note(MARGIN, 0.16, words)
    held = (f"{sum(h == lane for row in m for h, _ in row)} of {n}" for n, m in owners.items())
    sizes = (f"{n} {len(m)} × {len(m[0])}" for n, m in owners.items())
    page.say(
        f"Tiles of one mma.sync, {style.some(sizes)}; of their numbers lane {lane} holds "
        f"{style.some(held)}"
    )
    return page.figure


# ---------------------------------------------------------------------------------- pipeline


@dataclass(frozen=True)
class Pipeline:
    """When tiles are copied and multiplied, in a model with two numbers.

    Attributes:
        stages: tiles that have room in shared memory.
        copies, products: (begin, end) for each tile.
    """

    stages: int
    copies: tuple[tuple[float, float], ...]
    products: tuple[tuple[float, float], ...]

    @property
    def busy(self) -> float:
        """The share of the whole time in which something is multiplied."""
        return sum(end - begin for begin, end in self.products) / self.products[-1][1]


def pipeline(stages: int, tiles: int, copy: float = 3.0, product: float = 1.0) -> Pipeline:
    """A loop over tiles that copies ahead as far as there is room.

    Args:
        copy: from asking for a tile until it is there. Any number can be under way at once.
        product: of one tile.
    """
    if stages < 1:
        raise ValueError(f"stages must be at least 1, got {stages}")
    copies: list[tuple[float, float]] = []
    products: list[tuple[float, float]] = []
    for tile in range(tiles):
        # A stage is free when the tile before it in the same place has been multiplied.
        begin = products[tile - stages][1] if tile >= stages else 0.0
        copies.append((begin, begin + copy))
        start = max(copies[tile][1], products[-1][1] if products else 0.0)
        products.append((start, start + product))
    return Pipeline(stages, tuple(copies), tuple(products))


def draw_pipeline(state: Pipeline, until: float | None = None, at: Place | None = None) -> Figure:
    """Draw copies and products along time, one row per stage; red: the tensor cores wait."""
    end = until or state.products[-1][1]
    left, width, row = 1.3, 8.2, 0.24
    scale = width / end
    page = Page(left + width + MARGIN, 0.3 + (state.stages + 1) * row + 0.34, at)
    for stage in range(state.stages):
        y = 0.16 + stage * row
        page.put(left - 0.1, y + row / 2, f"stage {stage}", SMALL, ha="right")
        for tile in range(stage, len(state.copies), state.stages):
            begin, done = state.copies[tile]
            _bar(
                page, left + begin * scale, y, (done - begin) * scale, row, tint(ORANGE, 0.75), tile
            )
            waits = state.products[tile][0]
            if waits > done:
                _bar(page, left + done * scale, y, (waits - done) * scale, row, WASH)
            begin, done = state.products[tile]
            _bar(page, left + begin * scale, y, (done - begin) * scale, row, tint(BLUE, 0.35))
    y = 0.2 + state.stages * row
    page.put(left - 0.1, y + row / 2, "tensor cores", SMALL, ha="right")
    before = 0.0
    for tile, (begin, done) in enumerate(state.products):
        if begin > before:
            _bar(
                page, left + before * scale, y, (begin - before) * scale, row, tint(VERMILION, 0.45)
            )
        _bar(page, left + begin * scale, y, (done - begin) * scale, row, BLUE, tile, True)
        before = done
    words = f"{style.count(state.stages, 'stage')}: tensor cores busy {state.busy:.0%} of the time"
    page.put(left, y + row + 0.16, words, SMALL, weight="bold")
    page.say(f"{style.count(len(state.copies), 'tile')} copied and multiplied along time, {words}")
    return page.figure


def _bar(
    page: Page,
    x: float,
    y: float,
    width: float,
    row: float,
    face,
    tile: int | None = None,
    light: bool = False,
) -> None:
    page.box(x, y, max(width - 0.015, 0.01), row - 0.04, face, radius=0.02)
    if tile is not None and width > style.text_width(str(tile), 6.5) + 0.04:
        page.put(
            x + width / 2, y + row / 2 - 0.02, str(tile), 6.5, PAPER if light else INK, "center"
        )


# ---------------------------------------------------------------------------------- overlap

OVERLAP_MARGIN, LEFT, WIDTH, ROW = 0.16, 1.55, 8.0, 0.24


@dataclass(frozen=True)
class Bar:
    """Something that a thread block does for one of its tiles."""

    block: int
    name: str
    begin: float
    end: float


@dataclass(frozen=True)
class Overlap:
    """What attention in tiles does when, in a model with three numbers.

    Attributes:
        thread_blocks: how many there are on the multiprocessor.
        copies, products, exponentials: in the order in which they begin.
    """

    thread_blocks: int
    copies: tuple[Bar, ...]
    products: tuple[Bar, ...]
    exponentials: tuple[Bar, ...]

    @property
    def end(self) -> float:
        """When the last product is done."""
        return self.products[-1].end

    @property
    def busy(self) -> float:
        """The share of the time in which the tensor cores multiply."""
        return sum(bar.end - bar.begin for bar in self.products) / self.end


def overlap(
    thread_blocks: int,
    tiles: int,
    copy: float = 3.0,
    product: float = 2.0,
    exponential: float = 2.0,
    ahead: bool = True,
) -> Overlap:
    """Run `tiles` tiles of keys in all, dealt out to thread blocks that share the units.

    A tile is a product, its exponentials, another product. The tensor cores do one product at a
    time, the unit for exponentials one tile's; any number of copies can be under way.

    Args:
        copy, product, exponential: how long each takes.
        ahead: whether the next tile is asked for when this one's first product begins, else when
            its second is done.
    """
    if thread_blocks < 1 or tiles < 1:
        raise ValueError(
            f"thread_blocks and tiles must be at least 1, got {thread_blocks} and {tiles}"
        )
    copies = [Bar(b, "0", 0.0, copy) for b in range(thread_blocks)]
    arrived = {(b, 0): copy for b in range(thread_blocks)}
    ready = [copy] * thread_blocks  # when each may go on
    at = [(0, 0)] * thread_blocks  # its tile and step
    counts = [tiles // thread_blocks + (b < tiles % thread_blocks) for b in range(thread_blocks)]
    free = {"product": 0.0, "exponential": 0.0}
    products, exponentials = [], []
    while any(at[b][0] < counts[b] for b in range(thread_blocks)):
        waiting = [b for b in range(thread_blocks) if at[b][0] < counts[b]]
        unit_of = {b: "exponential" if at[b][1] == 1 else "product" for b in waiting}
        block = min(waiting, key=lambda b: (max(ready[b], free[unit_of[b]]), ready[b], b))
        (tile, step), unit = at[block], unit_of[block]
        begin = max(ready[block], free[unit])
        end = begin + (exponential if step == 1 else product)
        name = f"{'sxo'[step]}{tile}"
        (exponentials if step == 1 else products).append(Bar(block, name, begin, end))
        ready[block] = free[unit] = end
        if step == (0 if ahead else 2) and tile + 1 < counts[block]:
            asked = begin if ahead else end
            copies.append(Bar(block, str(tile + 1), asked, asked + copy))
            arrived[block, tile + 1] = asked + copy
        at[block] = (tile, step + 1) if step < 2 else (tile + 1, 0)
        if step == 2 and tile + 1 < counts[block]:
            ready[block] = max(end, arrived[block, tile + 1])
    order = (sorted(bars, key=lambda bar: bar.begin) for bars in (copies, products, exponentials))
    return Overlap(thread_blocks, *map(tuple, order))


def draw_overlap(state: Overlap, until: float | None = None, at: Place | None = None) -> Figure:
    """Draw who does what along time; a color a thread block, red where no product runs."""
    scale = WIDTH / (until or state.end)
    rows = [*(("copies", b) for b in range(state.thread_blocks)), ("tensor cores", -1), ("exp", -1)]
    page = Page(LEFT + WIDTH + OVERLAP_MARGIN, 0.3 + len(rows) * ROW + 0.34, at)
    for i, (name, block) in enumerate(rows):
        y = 0.16 + i * ROW
        words = f"{name}, thread block {block}" if block >= 0 and state.thread_blocks > 1 else name
        page.put(LEFT - 0.1, y + ROW / 2, words, SMALL, ha="right")
        if name == "copies":
            bars, strength = [bar for bar in state.copies if bar.block == block], 0.35
        else:
            bars, strength = (
                (state.products, 1.0) if name == "tensor cores" else (state.exponentials, 0.6)
            )
        if name == "tensor cores":
            before = 0.0
            for bar in bars:
                if bar.begin > before:
                    gap = tint(VERMILION, 0.35)
                    _overlap_bar(
                        page, before * scale, y, (bar.begin - before) * scale, gap, "", INK
                    )
                before = bar.end
        for bar in bars:
            color = tint((BLUE, GREEN, ORANGE)[bar.block % 3], strength)
            ink = PAPER if strength == 1.0 else INK
            _overlap_bar(
                page, bar.begin * scale, y, (bar.end - bar.begin) * scale, color, bar.name, ink
            )
    words = f"tensor cores busy {state.busy:.0%} of the time"
    page.put(LEFT, 0.16 + len(rows) * ROW + 0.16, words, SMALL, weight="bold")
    page.say(
        f"{style.count(state.thread_blocks, 'thread block')} on a multiprocessor, "
        f"{style.count(len(state.copies), 'tile')} copied, multiplied and exponentiated in "
        f"{state.end:g} units of time: {words}"
    )
    return page.figure


def _overlap_bar(page: Page, x: float, y: float, width: float, face, name: str, ink: str) -> None:
    page.box(LEFT + x, y, max(width - 0.015, 0.01), ROW - 0.04, face, radius=0.02)
    if name and width > style.text_width(name, 6.5) + 0.03:
        page.put(LEFT + x + width / 2, y + ROW / 2 - 0.02, name, 6.5, ink, "center")
