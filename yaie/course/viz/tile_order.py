"""A matrix product in tiles: what a program is at, and what programs that run together need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place
from yaie.course.viz.style import BLUE, FAINT, GREEN, MUTED, ORANGE, PAPER, SKY, SMALL, WASH, tint

MARGIN = 0.14
GAP = 0.3  # inches between the matrices
HEAD = 0.34

Span = tuple[int, int]
Rect = tuple[Span, Span]  # rows and columns, each from, to


@dataclass(frozen=True)
class ProductStep:
    """One step along k of one program.

    Attributes:
        m, n, k: a is [m, k], b is [k, n], c is [m, n].
        program: which.
        a, b, c: the tiles, possibly sticking out.
        done: tiles of c that are stored.
        loaded: elements of a and b loaded so far, by all programs.
    """

    m: int
    n: int
    k: int
    program: int
    a: Rect
    b: Rect
    c: Rect
    done: tuple[Rect, ...]
    loaded: int


def record_product(trace: Any, m: int, n: int, k: int) -> list[ProductStep]:
    """Steps from a `yaie.course.core.triton.Trace` of a product whose tensors are a, b and c.

    A step is a tile of a and a tile of b loaded by one program, in any order.
    """
    widths = {"a": k, "b": n, "c": n}
    home = {
        access.program[0]: _rect(access, n)
        for access in trace.accesses
        if access.name == "c" and access.kind == "store"
    }
    steps: list[ProductStep] = []
    loaded, tiles, done = 0, {}, []
    for access in trace.accesses:
        program = access.program[0]
        rect = _rect(access, widths[access.name])
        if access.name == "c":
            done.append(rect)
            continue
        loaded += int(access.mask.sum())
        tiles[access.name] = rect
        if len(tiles) == 2 and program in home:
            steps.append(
                ProductStep(
                    m, n, k, program, tiles["a"], tiles["b"], home[program], tuple(done), loaded
                )
            )
            tiles = {}
    return steps


def _rect(access: Any, width: int) -> Rect:
    """The rows and columns of the lanes that take part, but for those that wrap around."""
    elements = access.elements[access.mask]
    if not elements.size:
        return (0, 0), (0, 0)
    rows, columns = elements // width, elements % width
    ahead = (rows >= rows[0]) & (columns >= columns[0])
    rows, columns = rows[ahead], columns[ahead]
    return (int(rows.min()), int(rows.max()) + 1), (int(columns.min()), int(columns.max()) + 1)


def draw_product(state: ProductStep, at: Place | None = None) -> Figure:
    """Draw a, b above c's columns, c, and the tiles that are being multiplied."""
    unit = 2.4 / (state.k + max(state.m, state.n))
    a_x, b_x = MARGIN, MARGIN + state.k * unit + GAP
    b_y = HEAD + 0.12
    c_y = b_y + state.k * unit + GAP
    page = Page(max(b_x + state.n * unit, 2.6) + MARGIN, c_y + state.m * unit + 0.12 + MARGIN, at)
    ax = page.ax
    rows, columns = state.c
    _matrix(ax, a_x, c_y, state.m, state.k, unit, f"a  {state.m} × {state.k}")
    _matrix(ax, b_x, b_y, state.k, state.n, unit, f"b  {state.k} × {state.n}")
    _matrix(ax, b_x, c_y, state.m, state.n, unit, f"c  {state.m} × {state.n}")
    _fill(ax, a_x, c_y, unit, (rows, (0, state.k)), tint(ORANGE, 0.3))
    _fill(ax, b_x, b_y, unit, ((0, state.k), columns), tint(GREEN, 0.3))
    for tile in state.done:
        _fill(ax, b_x, c_y, unit, tile, tint(SKY, 0.6))
    _fill(ax, a_x, c_y, unit, state.a, ORANGE)
    _fill(ax, b_x, b_y, unit, state.b, GREEN)
    _fill(ax, b_x, c_y, unit, state.c, BLUE)
    words = f"program {state.program}, k from {state.a[1][0]} to {state.a[1][1] - 1}"
    ax.put(MARGIN, 0.16, words, weight="bold")
    ax.note(a_x, b_y + 0.16, f"{state.loaded:,} elements")
    ax.note(a_x, b_y + 0.32, "loaded so far")
    page.say(
        f"The product c = a b, {state.m} × {state.n}, k = {state.k}: {words}, for the tile of c "
        f"with rows {rows[0]} to {rows[1] - 1} and columns {columns[0]} to {columns[1] - 1}; "
        f"{style.count(len(state.done), 'tile')} done, {state.loaded:,} elements loaded so far"
    )
    return page.figure


def _matrix(ax: Axes, x: float, y: float, rows: int, columns: int, unit: float, name: str) -> None:
    ax.rect(x, y, columns * unit, rows * unit, WASH, edgecolor=FAINT, lw=0.8)
    ax.note(x, y - 0.1, name)


def _fill(ax: Axes, x: float, y: float, unit: float, tile: Rect, color) -> None:
    (row, row_end), (column, column_end) = tile
    corner = x + column * unit, y + row * unit
    ax.rect(*corner, (column_end - column) * unit - 0.012, (row_end - row) * unit - 0.012, color)


# ---------------------------------------------------------------------------------- the order


@dataclass(frozen=True)
class WaveState:
    """The tiles of c that are computed together, in one or several orders.

    Attributes:
        orders: (name, all tiles of c as (row, column) in the order of their programs).
        tiles_m, tiles_n: tiles of c along each axis.
        first, end: the programs that run now.
        before: strips loaded by the waves before, one number for each order.
    """

    orders: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    tiles_m: int
    tiles_n: int
    first: int
    end: int
    before: tuple[int, ...]


def record_waves(
    orders: dict[str, Sequence[tuple[int, int]]], tiles_m: int, tiles_n: int, together: int
) -> list[WaveState]:
    """A state for each wave of `together` programs."""
    named = tuple((name, tuple(order)) for name, order in orders.items())
    count = tiles_m * tiles_n
    states, before = [], [0] * len(named)
    for first in range(0, count, together):
        end = min(first + together, count)
        states.append(WaveState(named, tiles_m, tiles_n, first, end, tuple(before)))
        for i, (_, order) in enumerate(named):
            before[i] += sum(_strips(order[first:end]))
    return states


def _strips(wave: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return len({m for m, _ in wave}), len({n for _, n in wave})


def draw_waves(state: WaveState, at: Place | None = None) -> Figure:
    """Draw c with the number of each tile's program, and beside it the strips that are needed."""
    cell = min(0.3, 3.6 / max(state.tiles_m, state.tiles_n))
    left, top = MARGIN + 0.42, HEAD + 0.46
    panel = 0.42 + state.tiles_n * cell + 0.35
    page = Page(
        max(MARGIN + len(state.orders) * max(panel, 3.2), 3.2), top + state.tiles_m * cell + 0.3, at
    )
    for number, (name, order) in enumerate(state.orders):
        x = left + number * max(panel, 3.2)
        _order(page, state, name, order, state.before[number], x, top, cell)
    return page.figure


def _order(
    page: Page,
    state: WaveState,
    name: str,
    order: Sequence[tuple[int, int]],
    before: int,
    x: float,
    y: float,
    cell: float,
) -> None:
    ax, running = page.ax, order[state.first : state.end]
    rows, columns = {m for m, _ in running}, {n for _, n in running}
    ax.put(x - 0.42, 0.16, name, weight="bold")
    of_a, of_b = _strips(running)
    words = f"programs {state.first} to {state.end - 1}: {of_a} + {of_b} = {of_a + of_b} strips"
    ax.put(x - 0.42, 0.36, words, SMALL)
    for m in range(state.tiles_m):
        face = ORANGE if m in rows else WASH
        ax.rect(x - 0.3, y + m * cell, 0.2, cell - 0.03, face)
    for n in range(state.tiles_n):
        face = GREEN if n in columns else WASH
        ax.rect(x + n * cell, y - 0.26, cell - 0.03, 0.18, face)
    ax.note(x - 0.3, y - 0.1, "a")
    ax.note(x - 0.1, y - 0.17, "b", "center")
    for program, (m, n) in enumerate(order):
        face, ink = WASH, MUTED
        if program < state.first:
            face = tint(SKY, 0.5)
        elif program < state.end:
            face, ink = BLUE, PAPER
        corner = (x + n * cell, y + m * cell)
        ax.add_artist(Rectangle(corner, cell - 0.03, cell - 0.03, facecolor=face))
        if cell >= 0.22:
            spot = corner[0] + cell / 2 - 0.015, corner[1] + cell / 2 - 0.015
            ax.put(*spot, str(program), 6.2, ink, "center")
    total = before + of_a + of_b
    note = f"{total} strips so far"
    page.say(f"{state.tiles_m} × {state.tiles_n} tiles of c, {name}: {words} of a and b; {note}")
    ax.note(x, y + state.tiles_m * cell + 0.12, note)
