"""A matrix product in tiles: what slides along k, who owns what, and where pieces lie in banks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

MARGIN = 0.14
SIDE = 1.25  # inches of the longest side


@dataclass(frozen=True)
class ProductStep:
    """One turn of the loop over k, for one tile of c.

    Attributes:
        m, n, k: of the product.
        tile: rows and columns of the tile, and how much of k a turn takes.
        row, column: where the tile of c begins.
        start: where in k the turn begins.
        left: what is still missing in each element of the tile of c after the turn, `[tile, tile]`.
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


def draw_product(state: ProductStep, at: Place | None = None) -> Figure:
    """Draw a, b above and c beside it, with the tiles of this turn, and what they were good for."""
    unit = SIDE / max(state.m, state.n, state.k)
    gap, top = 0.16, MARGIN + 0.2
    a_x, c_x = MARGIN, MARGIN + state.k * unit + gap
    b_y, c_y = top, top + state.k * unit + gap
    width = c_x + state.n * unit + MARGIN
    page = Page(width, c_y + state.m * unit + 0.68, at)
    ax = page.ax
    for x, y, columns, rows, name, color in (
        (a_x, c_y, state.k, state.m, "a", style.ORANGE),
        (c_x, b_y, state.n, state.k, "b", style.GREEN),
        (c_x, c_y, state.n, state.m, "c", style.BLUE),
    ):
        _matrix(ax, x, y, columns * unit, rows * unit, state.tile * unit, style.tint(color, 0.1))
        ax.put(x + 0.03, y - 0.08, name, style.BODY, color, weight="bold")
    size = state.tile * unit
    for step in range(0, state.start + 1, state.tile):
        now = step == state.start
        orange, green = (style.tint(c, 1.0 if now else 0.35) for c in (style.ORANGE, style.GREEN))
        _fill(ax, a_x + step * unit, c_y + state.row * unit, size, orange)
        _fill(ax, c_x + state.column * unit, b_y + step * unit, size, green)
    left = np.asarray(state.left, dtype=np.float64)
    inner = page.axes(c_x + state.column * unit, c_y + state.row * unit, size, size)
    inner.imshow(np.abs(left), cmap="Blues_r", vmin=0.0, vmax=20.0, interpolation="nearest")
    inner.axis("off")
    lines = (
        (f"{state.fetched:,} elements fetched", style.INK),
        (f"{state.products:,} multiplications", style.INK),
        (f"missing in c: {np.abs(left).max():.3g} at most", style.MUTED),
    )
    for i, (words, color) in enumerate(lines):
        y = c_y + state.m * unit + 0.2 + 0.17 * i
        ax.put(MARGIN, y, words, style.SMALL, color)
    page.say(
        f"The product c = a b, {state.m} × {state.n}, k = {state.k}: the tile of c at row "
        f"{state.row}, column {state.column} takes in k from {state.start}; "
        f"{'; '.join(words for words, _ in lines)}"
    )
    return page.figure


def _matrix(ax: Axes, x: float, y: float, width: float, height: float, tile: float, face) -> None:
    ax.rect(x, y, width, height, face, edgecolor=style.MUTED, lw=0.8)
    line = {"color": style.FAINT, "lw": 0.5}
    for i in range(1, round(width / tile + 0.499)):
        ax.plot([x + i * tile] * 2, [y, y + height], **line)
    for i in range(1, round(height / tile + 0.499)):
        ax.plot([x, x + width], [y + i * tile] * 2, **line)


def _fill(ax: Axes, x: float, y: float, size: float, color) -> None:
    ax.rect(x, y, size - 0.01, size - 0.01, color)


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


def draw_owners(parts: Sequence[Part], at: Place | None = None) -> Figure:
    """Draw rectangles of c side by side, each looking into a part of the one before."""
    side, gap = 2.1, 0.42
    widths = [side * part.columns / max(part.rows, part.columns) for part in parts]
    page = Page(2 * MARGIN + sum(widths) + gap * (len(parts) - 1), side + 0.62, at)
    x, top = MARGIN, 0.34
    for part, width in zip(parts, widths, strict=True):
        unit = width / part.columns
        page.put(x, 0.18, part.title, style.SMALL, weight="bold")
        for row, column, rows, columns, owner in part.cuts:
            marked = owner == part.marked
            face = style.BLUE if marked else style.tint(style.SKY, 0.12 + 0.16 * (owner % 3))
            box = (x + column * unit, top + row * unit)
            size = (columns * unit, rows * unit)
            page.ax.add_artist(Rectangle(box, *size, facecolor=face, edgecolor=style.PAPER, lw=0.8))
            label = str(owner)
            if style.text_width(label, 6.5) < size[0] - 0.02 and size[1] > 0.1:
                color = style.PAPER if marked else style.INK
                page.put(box[0] + size[0] / 2, box[1] + size[1] / 2, label, 6.5, color, "center")
        words = f"{part.rows} × {part.columns}"
        page.note(x, top + part.rows * unit + 0.14, words)
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


# ---------------------------------------------------------------------------------- banks


def draw_places(table: Any, at: Place | None = None, piece: int = 0) -> Figure:
    """Draw the pieces of a tile in shared memory where they lie, 8 per line: all 32 banks.

    Args:
        table: the place of each piece, `[rows, pieces]`, counted in pieces of 16 bytes.
        piece: of each row, is marked: ldmatrix asks for this one of 8 rows at a time.
    """
    places = np.asarray(table.tolist() if hasattr(table, "tolist") else table)
    cell, height, left, top = 0.32, 0.19, 0.45, 0.52
    lines = (int(places.max()) // 8 + 1) if places.size else 0
    page = Page(left + 8 * cell + MARGIN, top + lines * height + 0.42, at)
    page.note(left, 0.16, "banks")
    for group in range(8):
        words = f"{4 * group}–{4 * group + 3}"
        page.put(left + (group + 0.5) * cell, 0.36, words, 6.5, style.MUTED, "center")
    for line in range(lines):
        middle = top + (line + 0.5) * height
        page.put(left - 0.07, middle, f"{128 * line}", 6, style.MUTED, "right")
    for row, found in enumerate(places):
        for number, place in enumerate(found):
            marked, first = number == piece, row < 8
            color = style.VERMILION if marked and first else style.ORANGE if marked else None
            face = color or style.tint(style.SKY, 0.1 + 0.12 * (row % 2))
            x, y = left + place % 8 * cell, top + place // 8 * height
            page.box(x, y, cell - 0.02, height - 0.02, face, radius=0.02)
            words = f"{row}.{number}"
            page.put(
                x + cell / 2 - 0.01,
                y + height / 2,
                words,
                6,
                style.PAPER if color else style.INK,
                "center",
            )
    groups = [int(place) % 8 for place in places[:8, piece]]
    worst = max((groups.count(group) for group in groups), default=0)
    words = f"piece {piece} of rows 0 to 7: {style.count(worst, 'wavefront')}"
    spot = left, top + lines * height + 0.18
    page.put(
        *spot, words, style.SMALL, style.GREEN if worst == 1 else style.VERMILION, weight="bold"
    )
    page.say(f"Where {places.size} pieces of {len(places)} rows lie in the banks; {words}")
    return page.figure
