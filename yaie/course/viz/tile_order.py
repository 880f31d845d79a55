"""A matrix product in tiles: what a program is at, and what programs that run together need."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.matmul import PRODUCT_GAP, lay_out_product
from yaie.course.viz.page import Page
from yaie.course.viz.style import BLUE, GREEN, MUTED, ORANGE, PAPER, SKY, SMALL, WASH, tint

MARGIN = 0.14

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


def draw_product(state: ProductStep) -> Figure:
    """Draw a, b above c's columns, c, and the tiles that are being multiplied."""
    m, n, k = state.m, state.n, state.k
    unit, top = 2.4 / (k + max(m, n)), 0.46
    width, height = MARGIN + (k + n) * unit + PRODUCT_GAP, top + (k + m) * unit + PRODUCT_GAP
    page = Page(max(width, 2.6) + MARGIN, height + 0.12 + MARGIN)
    a, b, c = lay_out_product(page, m, n, k, unit, top)
    rows, columns = state.c
    a.area(rows, (0, k), tint(ORANGE, 0.3))
    b.area((0, k), columns, tint(GREEN, 0.3))
    for tile in state.done:
        c.area(*tile, tint(SKY, 0.6))
    for grid, tile, color in ((a, state.a, ORANGE), (b, state.b, GREEN), (c, state.c, BLUE)):
        grid.area(*tile, color)
    words = f"program {state.program}, k from {state.a[1][0]} to {state.a[1][1] - 1}"
    page.put(MARGIN, 0.16, words, weight="bold")
    page.note(MARGIN, top + 0.16, f"{state.loaded:,} elements")
    page.note(MARGIN, top + 0.32, "loaded so far")
    page.say(
        f"The product c = a b, {m} × {n}, k = {k}: {words}, for the tile of c "
        f"with rows {rows[0]} to {rows[1] - 1} and columns {columns[0]} to {columns[1] - 1}; "
        f"{style.count(len(state.done), 'tile')} done, {state.loaded:,} elements loaded so far"
    )
    return page.figure


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


def draw_waves(state: WaveState) -> Figure:
    """Draw c with the number of each tile's program, and beside it the strips that are needed."""
    cell = min(0.3, 3.6 / max(state.tiles_m, state.tiles_n))
    panel, top = max(0.77 + state.tiles_n * cell, 3.2), 0.8
    page = Page(MARGIN + len(state.orders) * panel, top + state.tiles_m * cell + 0.3)
    for number, (name, order) in enumerate(state.orders):
        _draw_order(page, state, name, order, state.before[number], MARGIN + number * panel, cell)
    return page.figure


def _draw_order(
    page: Page,
    state: WaveState,
    name: str,
    order: Sequence[tuple[int, int]],
    before: int,
    left: float,
    cell: float,
) -> None:
    running = order[state.first : state.end]
    rows, columns = {m for m, _ in running}, {n for _, n in running}
    of_a, of_b = _strips(running)
    words = f"programs {state.first} to {state.end - 1}: {of_a} + {of_b} = {of_a + of_b} strips"
    page.put(left, 0.16, name, weight="bold")
    page.put(left, 0.36, words, SMALL)
    grid = page.grid(left + 0.42, 0.8, cell, cell, 0.03)
    strip = -0.3 / cell, -0.07 / cell  # beside the matrix, in cells
    for m in range(state.tiles_m):
        grid.area((m, m + 1), strip, ORANGE if m in rows else WASH)
    for n in range(state.tiles_n):
        grid.area(strip, (n, n + 1), GREEN if n in columns else WASH)
    page.note(grid.left - 0.3, grid.top - 0.1, "a")
    page.note(grid.left - 0.1, grid.top - 0.17, "b", "center")
    for program, place in enumerate(order):
        face, ink = WASH, MUTED
        if program < state.first:
            face = tint(SKY, 0.5)
        elif program < state.end:
            face, ink = BLUE, PAPER
        grid.cell(*place, face, str(program) if cell >= 0.22 else "", size=6.2, color=ink)
    note = f"{before + of_a + of_b} strips so far"
    page.say(f"{state.tiles_m} × {state.tiles_n} tiles of c, {name}: {words} of a and b; {note}")
    page.note(grid.left, grid.y(state.tiles_m) + 0.12, note)
