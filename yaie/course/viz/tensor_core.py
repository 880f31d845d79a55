"""Tensor cores: who holds what of an mma.sync, and a pipeline that keeps them busy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.16
CELL_X, CELL_Y = 0.24, 0.17
Owners = Mapping[str, Sequence[Sequence[tuple[int, int]]]]


def draw_fragments(owners: Owners, lane: int = 5, at: style.Place | None = None) -> Figure:
    """Draw the tiles of one mma.sync, C beside A and below B, with the lane that holds each number.

    Args:
        owners: "A", "B" and "C" as rows of (lane, register).
        lane: whose numbers are marked, a color for each register.
    """
    a, b, c = (owners[name] for name in "ABC")
    gap = 0.42
    a_x, c_x = MARGIN, MARGIN + len(a[0]) * CELL_X + gap
    b_y, c_y = 0.42, 0.42 + len(b) * CELL_Y + gap
    page = style.Page(c_x + len(c[0]) * CELL_X + MARGIN, c_y + len(a) * CELL_Y + 0.34, at)
    for name, rows, x, y in (("A", a, a_x, c_y), ("B", b, c_x, b_y), ("C", c, c_x, c_y)):
        title = f"{name}: {len(rows)} × {len(rows[0])}"
        style.put(page.ax, x, y - 0.12, title, style.SMALL, weight="bold")
        for i, row in enumerate(rows):
            for j, (holder, register) in enumerate(row):
                own = holder == lane
                face = style.series_color(register) if own else style.tint(
                    style.INK, 0.05 + 0.05 * (holder // 4 % 2)
                )  # fmt: skip
                left, top = x + j * CELL_X, y + i * CELL_Y
                style.box(page.ax, left, top, CELL_X - 0.015, CELL_Y - 0.015, face, radius=0.02)
                style.put(page.ax, left + CELL_X / 2, top + CELL_Y / 2, str(holder), 6,
                          style.PAPER if own else style.INK, "center")  # fmt: skip
    words = f"each number says which lane holds it; lane {lane} in color, a color a register"
    style.put(page.ax, MARGIN, 0.16, words, style.SMALL, style.MUTED)
    held = (f"{sum(h == lane for row in m for h, _ in row)} of {n}" for n, m in owners.items())
    sizes = (f"{n} {len(m)} × {len(m[0])}" for n, m in owners.items())
    page.say(
        f"Tiles of one mma.sync, {style.some(sizes)}; of their numbers lane {lane} holds "
        f"{style.some(held)}"
    )
    return page.figure


# ----------------------------------------------------------------------------------- pipeline


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


def draw_pipeline(
    state: Pipeline, until: float | None = None, at: style.Place | None = None
) -> Figure:
    """Draw copies and products along time, a row a stage; red is where the tensor cores wait."""
    end = until or state.products[-1][1]
    left, width, row = 1.3, 8.2, 0.24
    scale = width / end
    page = style.Page(left + width + MARGIN, 0.3 + (state.stages + 1) * row + 0.34, at)
    for stage in range(state.stages):
        y = 0.16 + stage * row
        style.put(page.ax, left - 0.1, y + row / 2, f"stage {stage}", style.SMALL, ha="right")
        for tile in range(stage, len(state.copies), state.stages):
            begin, done = state.copies[tile]
            _bar(page, left + begin * scale, y, (done - begin) * scale, row,
                 style.tint(style.ORANGE, 0.75), tile)  # fmt: skip
            waits = state.products[tile][0]
            if waits > done:
                _bar(page, left + done * scale, y, (waits - done) * scale, row, style.WASH)
            begin, done = state.products[tile]
            _bar(page, left + begin * scale, y, (done - begin) * scale, row,
                 style.tint(style.BLUE, 0.35))  # fmt: skip
    y = 0.2 + state.stages * row
    style.put(page.ax, left - 0.1, y + row / 2, "tensor cores", style.SMALL, ha="right")
    before = 0.0
    for tile, (begin, done) in enumerate(state.products):
        if begin > before:
            _bar(page, left + before * scale, y, (begin - before) * scale, row,
                 style.tint(style.VERMILION, 0.45))  # fmt: skip
        _bar(page, left + begin * scale, y, (done - begin) * scale, row, style.BLUE, tile, True)
        before = done
    words = f"{style.count(state.stages, 'stage')}: tensor cores busy {state.busy:.0%} of the time"
    style.put(page.ax, left, y + row + 0.16, words, style.SMALL, weight="bold")
    page.say(f"{style.count(len(state.copies), 'tile')} copied and multiplied along time, {words}")
    return page.figure


def _bar(page: style.Page, x: float, y: float, width: float, row: float, face,
         tile: int | None = None, light: bool = False) -> None:  # fmt: skip
    style.box(page.ax, x, y, max(width - 0.015, 0.01), row - 0.04, face, radius=0.02)
    if tile is not None and width > style.text_width(str(tile), 6.5) + 0.04:
        style.put(page.ax, x + width / 2, y + row / 2 - 0.02, str(tile), 6.5,
                  style.PAPER if light else style.INK, "center")  # fmt: skip
