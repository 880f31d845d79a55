"""A matrix product in tiles: what slides along k, who owns what, and where chunks lie in banks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page

MARGIN = 0.14
PRODUCT_GAP = 0.3  # inches between a, b and c


@dataclass(frozen=True)
class ProductStep:
    """One iteration of the loop over k, for one tile of c.

    Attributes:
        m, n, k: of the product.
        tile: rows and columns of the tile, and how much of k an iteration takes.
        row, column: where the tile of c begins.
        start: where in k the iteration begins.
        left: what each element of the tile of c still lacks after the iteration, `[tile, tile]`.
        fetched: elements brought from global memory so far.
        products: multiplications done with them.
    """

    m: int
    n: int
    k: int
    tile: int
    row: int
    column: int
    start: int
    left: Any
    fetched: int
    products: int


def lay_out_product(
    page: Page, m: int, n: int, k: int, unit: float, top: float, tile: int | None = None
) -> tuple[Grid, Grid, Grid]:
    """Draw the tiles of a, b and c, b above c and a beside it; return the grid of each."""
    left, gap, tile = MARGIN, PRODUCT_GAP, tile or max(m, n, k)
    right, bottom = left + k * unit + gap, top + k * unit + gap
    places = {"a": (left, bottom, m, k), "b": (right, top, k, n), "c": (right, bottom, m, n)}
    grids = []
    for name, (x, y, rows, columns) in places.items():
        grids.append(page.grid(x, y, unit, unit, 0.012))
        for row, column in product(range(0, rows, tile), range(0, columns, tile)):
            down, across = (row, min(row + tile, rows)), (column, min(column + tile, columns))
            grids[-1].area(down, across, style.WASH, edge=style.FAINT)
        page.note(x, y - 0.1, f"{name}  {rows} × {columns}")
    return tuple(grids)


def draw_product(state: ProductStep) -> Figure:
    """Draw a, b above and c beside it, with the tiles of this iteration, and what they gave."""
    m, n, k, tile = state.m, state.n, state.k, state.tile
    unit, top = 1.25 / max(m, n, k), MARGIN + 0.2
    width, height = (k + n) * unit + 2 * MARGIN, top + (k + m) * unit + 0.68
    page = Page(width + PRODUCT_GAP, height + PRODUCT_GAP)
    a, b, c = lay_out_product(page, m, n, k, unit, top, tile)
    rows, columns = (state.row, state.row + tile), (state.column, state.column + tile)
    for start in range(0, state.start + 1, tile):
        strength = 1.0 if start == state.start else 0.35
        taken = start, start + tile
        a.area(rows, taken, style.tint(style.ORANGE, strength))
        b.area(taken, columns, style.tint(style.GREEN, strength))
    left = np.abs(np.asarray(state.left, dtype=np.float64))
    inner = page.axes(c.x(state.column), c.y(state.row), tile * unit, tile * unit)
    inner.imshow(left, cmap="Blues_r", vmin=0.0, vmax=20.0, interpolation="nearest")
    inner.axis("off")
    lines = (
        f"{state.fetched:,} elements fetched",
        f"{state.products:,} multiplications",
        f"missing in c: {left.max():.3g} at most",
    )
    for i, words in enumerate(lines):
        page.put(MARGIN, c.y(m) + 0.2 + 0.17 * i, words, style.SMALL)
    page.say(
        f"The product c = a b, {m} × {n}, k = {k}: the tile of c at row {state.row}, column "
        f"{state.column} takes in k from {state.start}; {'; '.join(lines)}"
    )
    return page.figure


# ---------------------------------------------------------------------------------- owners


@dataclass(frozen=True)
class Part:
    """A rectangle of c that is cut into smaller ones, each of which has an owner.

    Attributes:
        title: whose rectangle it is.
        rows, columns: its size.
        cuts: (row, column, rows, columns, owner) of what it is cut into; owners from 0 on.
        marked: the owner that the next picture looks into.
    """

    title: str
    rows: int
    columns: int
    cuts: Sequence[tuple[int, int, int, int, int]]
    marked: int = 0


def draw_owners(parts: Sequence[Part]) -> Figure:
    """Draw rectangles of c side by side, each looking into a part of the one before."""
    side, gap = 2.1, 0.42
    widths = [side * part.columns / max(part.rows, part.columns) for part in parts]
    page = Page(2 * MARGIN + sum(widths) + gap * (len(parts) - 1), side + 0.62)
    x, top = MARGIN, 0.34
    for part, width in zip(parts, widths, strict=True):
        unit = width / part.columns
        grid = page.grid(x, top, unit, unit)
        page.put(x, 0.18, part.title, style.SMALL, weight="bold")
        for row, column, rows, columns, owner in part.cuts:
            face, ink = style.tint(style.SKY, 0.12 + 0.16 * (owner % 3)), style.INK
            if owner == part.marked:
                face, ink = style.BLUE, style.PAPER
            fits = style.text_width(str(owner), 6.5) < columns * unit - 0.02 and rows * unit > 0.1
            spans = (row, row + rows), (column, column + columns)
            look = {"size": 6.5, "color": ink, "edge": style.PAPER}
            grid.area(*spans, face, str(owner) if fits else "", **look)
        page.note(x, grid.y(part.rows) + 0.14, f"{part.rows} × {part.columns}")
        x += width + gap
    for part in parts:
        own = sum(cut[4] == part.marked for cut in part.cuts)
        size = " × ".join(map(str, part.cuts[0][2:4]))
        owners = len({cut[4] for cut in part.cuts})
        page.say(
            f"{part.title}, {part.rows} × {part.columns}, cut into {len(part.cuts)} pieces, the "
            f"first {size}, of {owners} owners; marked are the {own} of owner {part.marked}"
        )
    return page.figure


# ---------------------------------------------------------------------------------- outer product


def draw_outer(a: Sequence[float], b: Sequence[float]) -> Figure:
    """Draw what a thread adds to its sums in one step along k: every number of a times each of b.

    Args:
        a: its numbers of a column of a.
        b: its numbers of a row of b.
    """
    cell, left, top = 0.36, 1.0, 0.74
    loaded, products = len(a) + len(b), len(a) * len(b)
    said = (
        f"{loaded} numbers from shared memory",
        f"{products} multiplications, each into a sum in a register",
        f"{products / loaded:.3g} multiplications per number, 0.5 with one sum per thread",
    )
    beside_it = max(3.3, 0.4 + max(style.text_width(words, style.SMALL) for words in said))
    page = Page(left + len(b) * cell + beside_it, top + len(a) * cell * 0.75 + 0.2)
    grid = page.grid(left, top, cell, cell * 0.75, 0.025)
    page.put(grid.left, 0.16, "a row of b", style.SMALL, weight="bold")
    page.put(MARGIN, 0.56, "a column of a", style.SMALL, weight="bold")
    beside = -0.28 - 1, -0.28  # in cells
    for row, number in enumerate(a):
        grid.area((row, row + 1), beside, style.tint(style.ORANGE, 0.75), f"{number:g}")
        for column, other in enumerate(b):
            face = style.tint(style.BLUE, 0.2)
            grid.cell(row, column, face, f"{number * other:g}")
    for column, other in enumerate(b):
        face = style.tint(style.GREEN, 0.6)
        grid.area((-1.36, -0.36), (column, column + 1), face, f"{other:g}")
    for line, words in enumerate(said):
        page.put(grid.x(len(b)) + 0.25, top + 0.2 + 0.22 * line, words, style.SMALL)
    page.say(f"{len(a)} numbers of a column of a times {len(b)} of a row of b: {'; '.join(said)}")
    return page.figure


# ---------------------------------------------------------------------------------- banks


def draw_places(table: Any, chunk: int = 0) -> Figure:
    """Draw the chunks of a tile in shared memory where they lie, 8 per line: all 32 banks.

    Args:
        table: the place of each chunk, `[rows, chunks]`, counted in chunks of 16 bytes.
        chunk: of each row, is marked: ldmatrix asks for this one of 8 rows at a time.
    """
    places = np.asarray(table.tolist() if hasattr(table, "tolist") else table)
    left, top = 0.45, 0.52
    lines = (int(places.max()) // 8 + 1) if places.size else 0
    page = Page(left + 8 * 0.32 + MARGIN, top + lines * 0.19 + 0.58)
    grid = page.grid(left, top, 0.32, 0.19, 0.02)
    page.note(left, 0.16, "above: banks")
    for group in range(8):
        grid.head(group, f"{4 * group}–{4 * group + 3}")
    for line in range(lines):
        grid.name(line, str(128 * line), 6, color=style.MUTED)
    for row, found in enumerate(places.tolist()):
        for number, place in enumerate(found):
            face, ink = style.tint(style.SKY, 0.1 + 0.12 * (row % 2)), style.INK
            if number == chunk:
                face = style.VERMILION if row < 8 else style.ORANGE
                ink = style.ink_on(face)
            words = f"{row}.{number}"
            grid.cell(*divmod(place, 8), face, words, size=6, color=ink, radius=0.02)
    groups = [int(place) % 8 for place in places[:8, chunk]]
    worst = max((groups.count(group) for group in groups), default=0)
    words = f"chunk {chunk} of rows 0 to 7: {style.count(worst, 'wavefront')}"
    color = style.GREEN if worst == 1 else style.VERMILION
    page.put(left, grid.y(lines) + 0.18, words, style.SMALL, color, weight="bold")
    page.note(left, grid.y(lines) + 0.38, "a cell is row.chunk; left: its line's first byte")
    page.say(f"Where {places.size} chunks of {len(places)} rows lie in the banks; {words}")
    return page.figure


def draw_asked(asked: Sequence[Any], rows: range, chunks: int) -> Figure:
    """Draw some rows of a tile in shared memory, with the lanes that point ldmatrix at its chunks.

    Args:
        asked: rows with `row`, `chunk`, `lane` and the `number` of the instruction.
        rows: of the tile, those that are drawn.
        chunks: per row.
    """
    left, top, width, height = 0.45, 0.52, 0.27, 0.13
    across = max(2.4, left + chunks * width + MARGIN)  # the note's width at least
    page = Page(across, top + len(rows) * height + 0.42)
    grid = page.grid(left, top, width, height, 0.012)
    page.note(MARGIN, 0.16, "a color per matrix; the number is the lane's")
    for chunk in range(chunks):
        grid.head(chunk, str(chunk))
    lanes = {(x.row, x.chunk): x for x in asked}
    for line, row in enumerate(rows):
        if row % 8 == 0:
            grid.name(line, str(row), 6, color=style.MUTED)
        for chunk in range(chunks):
            found = lanes.get((row, chunk))
            face = style.WASH
            if found:
                face = style.tint(
                    style.series_color(found.lane // 8), 0.75 - 0.4 * (found.number % 2)
                )
            words = str(found.lane) if found else ""
            grid.cell(line, chunk, face, words, size=5.5, color=style.INK, radius=0.015)
    number = len({x.number for x in asked if x.row in rows})
    words = f"{number} ldmatrix"
    page.put(left, grid.y(len(rows)) + 0.18, words, style.SMALL, weight="bold")
    page.say(
        f"Rows {rows[0]} to {rows[-1]} of a tile, {chunks} chunks each, with the lanes that point "
        f"{words} at them"
    )
    return page.figure
