"""Tensor cores: fragments, pipelines, and work that overlaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page
from yaie.course.viz.style import BLUE, GREEN, INK, ORANGE, SMALL, VERMILION, WASH, tint

MARGIN = 0.16
LEFT, WIDTH, ROW = 1.55, 8.0, 0.24  # inches of the lanes along time
WAITING = tint(VERMILION, 0.45)


def _lanes(rows: int, end: float) -> tuple[Page, Grid]:
    page = Page(LEFT + WIDTH + MARGIN, 0.86 + rows * ROW)
    return page, page.grid(LEFT, 0.16, WIDTH / end, ROW, 0.015, 0.04)


def _draw_tensor_cores(
    page: Page,
    grid: Grid,
    row: int,
    products: Sequence[Bar],
    words: str,
    kinds: Mapping[str, Any],
    key: str = "",
) -> None:
    """A lane of products, red where the tensor cores wait; below it some words and a legend."""
    grid.name(row, "tensor cores")
    before = 0.0
    for bar in products:
        if bar.begin > before:
            grid.bar(row, before, bar.begin, WAITING)
        face = (BLUE, GREEN, ORANGE)[bar.block % 3]
        grid.bar(row, bar.begin, bar.end, face, bar.name, size=6.5, color=style.ink_on(face))
        before = bar.end
    page.put(LEFT, page.height - 0.5, words, SMALL, weight="bold")
    page.legend(LEFT, page.height - 0.24, {**kinds, "the tensor cores wait": WAITING})
    page.note(page.width - MARGIN, page.height - 0.5, f"{key}time →", "right")


@dataclass(frozen=True)
class Bar:
    """What a thread block does for one of its tiles, or one stage of a pipeline."""

    block: int
    name: str
    begin: float
    end: float


# ---------------------------------------------------------------------------------- tensor core

Owners = Mapping[str, Sequence[Sequence[tuple[int, int]]]]


def draw_fragments(owners: Owners, lane: int = 5) -> Figure:
    """Draw the tiles of one mma.sync, C beside A and below B, with the lane that holds each number.

    Args:
        owners: "A", "B" and "C" as rows of (lane, register).
        lane: whose numbers are marked, a color for each register.
    """
    a, b, c = (owners[name] for name in "ABC")
    width, height, gap = 0.24, 0.17, 0.42
    c_x, c_y = MARGIN + len(a[0]) * width + gap, 0.42 + len(b) * height + gap
    page = Page(c_x + len(c[0]) * width + MARGIN, c_y + len(a) * height + 0.34)
    for name, rows, x, y in (("A", a, MARGIN, c_y), ("B", b, c_x, 0.42), ("C", c, c_x, c_y)):
        page.put(x, y - 0.12, f"{name}: {len(rows)} × {len(rows[0])}", SMALL, weight="bold")
        grid = page.grid(x, y, width, height, 0.015)
        for i, row in enumerate(rows):
            for j, (holder, register) in enumerate(row):
                face, ink = tint(INK, 0.05 + 0.05 * (holder // 4 % 2)), INK
                if holder == lane:
                    face = style.series_color(register)
                    ink = style.ink_on(face)
                grid.cell(i, j, face, str(holder), size=6, color=ink, radius=0.02)
    words = f"each number says which lane holds it; lane {lane} in color, a color per register"
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
        copy: from asking for a tile until it is there. Any number can be under way together.
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


def replay(
    stages: int, events: Sequence[tuple[str, float]], copy: float = 3.0, product: float = 1.0
) -> Pipeline:
    """A kernel's pipeline in the same model, from what one of its threads does in order.

    Args:
        events: ("copy", stage) starts a tile's copy, ("wait", n) waits for all copies but the n
            newest, ("product", share) multiplies this share of the next tile. Others take no time.
    """
    now, done = 0.0, 0.0  # the time, and the tiles that have been multiplied
    copies: list[tuple[float, float]] = []
    products: list[tuple[float, float]] = []
    for what, number in events:
        if what == "copy":
            copies.append((now, now + copy))
        elif what == "wait":
            now = max([now, *(end for _, end in copies[: max(0, len(copies) - int(number))])])
        while what == "product" and number > 1e-6:
            share = min(number, int(done + 1 + 1e-6) - done)
            begin = products.pop()[0] if done % 1 > 1e-6 else now
            now += share * product
            products.append((begin, now))
            done, number = round(done + share, 6), number - share
    return Pipeline(stages, tuple(copies[: len(products)]), tuple(products))


def draw_pipeline(state: Pipeline, until: float | None = None) -> Figure:
    """Draw copies and products along time, one row per stage; red: the tensor cores wait."""
    page, grid = _lanes(state.stages + 1, until or state.products[-1][1])
    for tile, (copy, product) in enumerate(zip(state.copies, state.products, strict=True)):
        row = tile % state.stages
        grid.bar(row, *copy, tint(ORANGE, 0.75), str(tile), size=6.5)
        if product[0] > copy[1]:
            grid.bar(row, copy[1], product[0], WASH)
        grid.bar(row, *product, tint(BLUE, 0.35))
    for stage in range(state.stages):
        grid.name(stage, f"stage {stage}")
    words = f"{style.count(state.stages, 'stage')}: tensor cores busy {state.busy:.0%} of the time"
    products = [Bar(0, str(tile), *times) for tile, times in enumerate(state.products)]
    kinds = {
        "a tile is copied": tint(ORANGE, 0.75),
        "it is there and waits": WASH,
        "it is being read": tint(BLUE, 0.35),
        "its product": BLUE,
    }
    _draw_tensor_cores(page, grid, state.stages, products, words, kinds)
    page.say(f"{style.count(len(state.copies), 'tile')} copied and multiplied along time, {words}")
    return page.figure


# ---------------------------------------------------------------------------------- overlap


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


COPY, PRODUCT, EXPONENTIAL = 3.0, 2.0, 2.0  # how long each takes


def overlap(thread_blocks: int, tiles: int, ahead: bool = True) -> Overlap:
    """Run `tiles` tiles of keys in all, dealt out to thread blocks that share the units.

    A tile is a product, its exponentials, another product. The tensor cores do one product at a
    time, the unit for exponentials one tile's; any number of copies can be under way.

    Args:
        ahead: whether the next tile is requested when this one's first product begins, else when
            its second is done.
    """
    if thread_blocks < 1 or tiles < 1:
        raise ValueError(
            f"thread_blocks and tiles must be at least 1, got {thread_blocks} and {tiles}"
        )
    copies = [Bar(b, "0", 0.0, COPY) for b in range(thread_blocks)]
    arrived = {(b, 0): COPY for b in range(thread_blocks)}
    ready = [COPY] * thread_blocks  # when each may go on
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
        end = begin + (EXPONENTIAL if step == 1 else PRODUCT)
        name = f"{'sxo'[step]}{tile}"
        (exponentials if step == 1 else products).append(Bar(block, name, begin, end))
        ready[block] = free[unit] = end
        if step == (0 if ahead else 2) and tile + 1 < counts[block]:
            asked = begin if ahead else end
            copies.append(Bar(block, str(tile + 1), asked, asked + COPY))
            arrived[block, tile + 1] = asked + COPY
        at[block] = (tile, step + 1) if step < 2 else (tile + 1, 0)
        if step == 2 and tile + 1 < counts[block]:
            ready[block] = max(end, arrived[block, tile + 1])
    order = (sorted(bars, key=lambda bar: bar.begin) for bars in (copies, products, exponentials))
    return Overlap(thread_blocks, *map(tuple, order))


def draw_overlap(state: Overlap, until: float | None = None) -> Figure:
    """Draw each unit's work along time; a color per thread block, red where no product runs."""
    blocks = state.thread_blocks
    page, grid = _lanes(blocks + 2, until or state.end)
    lanes = [(bar.block, bar, 0.35) for bar in state.copies]
    lanes += [(blocks + 1, bar, 0.6) for bar in state.exponentials]
    for row, bar, strength in lanes:
        face = tint((BLUE, GREEN, ORANGE)[bar.block % 3], strength)
        grid.bar(row, bar.begin, bar.end, face, bar.name, size=6.5)
    for block in range(blocks):
        grid.name(block, f"copies, thread block {block}" if blocks > 1 else "copies")
    grid.name(blocks + 1, "exp")
    words = f"tensor cores busy {state.busy:.0%} of the time"
    key = "s: scores, x: exponentials, o: output; the number is the tile's; "
    colors = (BLUE, GREEN, ORANGE)[:blocks]
    kinds = {f"thread block {n}": color for n, color in enumerate(colors)} if blocks > 1 else {}
    _draw_tensor_cores(page, grid, blocks, state.products, words, kinds, key)
    page.say(
        f"{style.count(blocks, 'thread block')} on a multiprocessor, "
        f"{style.count(len(state.copies), 'tile')} copied, multiplied and exponentiated in "
        f"{state.end:g} units of time: {words}"
    )
    return page.figure
