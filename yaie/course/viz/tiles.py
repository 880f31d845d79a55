"""Attention in tiles: what is loaded, what is computed, and who holds what."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page

# ---------------------------------------------------------------------------------- tiles

MARGIN = 0.14
STRIP = 0.2  # inches: the queries at the side, keys and values above
SIDE = 2.0  # inches of the longer side of the matrix
METERS = 1.8  # inches for the bytes beside it

Span = tuple[int, int]


@dataclass(frozen=True)
class TileStep:
    """What a tiled attention has done when it computes one tile.

    Attributes:
        num_q, num_k: the matrix of scores has num_q rows and num_k columns.
        causal: whether keys after the query are hidden.
        current: rows and columns of the tile being computed; None when all is done.
        done: the tiles before it.
        passed: whether a row of tiles is finished, so that what it left out stays out.
        moved: bytes moved so far, by the name of the tensor, reads and writes apart.
        naive: bytes that a matrix of all scores would cost, or 0 to leave it out.
    """

    num_q: int
    num_k: int
    causal: bool
    current: tuple[Span, Span] | None
    done: tuple[tuple[Span, Span], ...]
    moved: tuple[tuple[str, int], ...]
    naive: int = 0


def record_tiles(
    events: Iterable[Any], num_q: int, num_k: int, causal: bool, naive: int = 0
) -> list[TileStep]:
    """Steps from the accesses that a `yaie.course.core.memory.Memory` counted.

    A tile is computed when a tile of "k" and of "v" with the same rows has been read, for the
    queries that were read last. What is written counts as "out", what else is read as "other".
    """
    steps: list[TileStep] = []
    moved = {"q": 0, "k": 0, "v": 0, "out": 0}
    rows: Span | None = None
    loaded: dict[str, Span] = {}
    tiles: list[tuple[Span, Span]] = []

    def step(current: tuple[Span, Span] | None) -> TileStep:
        counts = tuple(moved.items())
        return TileStep(num_q, num_k, causal, current, tuple(tiles), counts, naive)

    for event in events:
        name = "out" if event.kind == "write" else event.name if event.name in "qkv" else "other"
        moved[name] = moved.get(name, 0) + event.bytes
        span = (event.start, event.end)
        if event.kind != "read":
            continue
        if name == "q":
            rows, loaded = span, {}
        elif name in ("k", "v"):
            loaded[name] = span
            if rows and loaded.get("k") == loaded.get("v"):
                steps.append(step((rows, span)))
                tiles.append((rows, span))
                loaded = {}
    return [*steps, step(None)]


def draw_tiles(state: TileStep) -> Figure:
    """Draw the matrix that is never stored, the tile being computed, and the bytes so far."""
    unit = SIDE / max(state.num_q, state.num_k, 1)
    left, top = MARGIN + 0.34 + STRIP, MARGIN + 0.26 + STRIP
    every_q, every_k = (0, state.num_q), (0, state.num_k)
    meters = left + state.num_k * unit + 0.3
    page = Page(meters + METERS, max(top + state.num_q * unit, 2.6) + MARGIN)
    grid = page.grid(left, top, unit, unit, 0.015)
    strip = 0.06 / unit, STRIP / unit  # the gap beside the matrix, and the thickness, in cells
    beside = (-strip[0] - strip[1], -strip[0])
    for rows, columns in ((every_q, beside), (beside, every_k)):
        grid.area(rows, columns, style.WASH, edge=style.FAINT, line=0.6)
    x, y = grid.x(beside[0]), grid.y(beside[0])
    page.put(x - 0.06, top + 0.08, "Q", ha="right", weight="bold")
    page.put(left, y - 0.1, "K and V", weight="bold")
    finished = max((rows[1] for rows, _ in state.done), default=0)
    if state.current:
        finished = min(finished, state.current[0][0])
    grid.area((0, finished), every_k, style.tint(style.INK, 0.22))
    for tile in state.done:
        grid.area(*tile, style.tint(style.SKY, 0.6))
    words = (
        f"{style.count(len(state.done), 'tile')} of the {state.num_q} × {state.num_k} scores done"
    )
    if state.current:
        queries, keys = state.current
        grid.area(queries, keys, style.BLUE)
        grid.area(queries, beside, style.ORANGE)
        grid.area(beside, keys, style.GREEN)
        words += f", now queries {queries[0]} to {queries[1] - 1} and keys {keys[0]} to "
        words += str(keys[1] - 1)
    if state.causal:
        draw_mask(grid, state.num_q, state.num_k)
    grid.area(every_q, every_k, edge=style.MUTED)
    _draw_meters(page, state, meters, top)
    stored = f"; with scores stored, {state.naive:,}" if state.naive else ""
    page.say(f"{words}; {sum(dict(state.moved).values()):,} bytes moved so far{stored}")
    return page.figure


def draw_mask(grid: Grid, num_q: int, num_k: int) -> None:
    """Hatch the keys that come after their query: a staircase that ends bottom-right."""
    corners = [(num_k, 0)]
    for row in range(num_q):
        edge = min(max(num_k - num_q + row + 1, 0), num_k)
        corners += [(edge, row), (edge, row + 1)]
    corners.append((num_k, num_q))
    points = [(grid.x(column), grid.y(row)) for column, row in corners]
    look = {"facecolor": "none", "edgecolor": style.tint(style.INK, 0.3), "lw": 0}
    grid.ax.add_artist(Polygon(points, hatch="//////", **look))


def _draw_meters(page: Page, state: TileStep, x: float, y: float) -> None:
    """A line for each tensor: its name, the bytes that moved, a bar."""
    looks = {
        "q": ("Q read", style.ORANGE),
        "k": ("K read", style.GREEN),
        "v": ("V read", style.GREEN),
        "other": ("else read", style.MUTED),
        "out": ("written", style.VERMILION),
    }
    total = sum(count for _, count in state.moved)
    lines = [(*looks[name], count) for name, count in state.moved]
    lines.append(("in all", style.INK, total))
    if state.naive:
        lines.append(("with scores stored", style.FAINT, state.naive))
    grid = page.grid(x, y - 0.11, (METERS - MARGIN) / max(1, state.naive, total), 0.385, 0, 0.265)
    for row, (name, color, count) in enumerate(lines):
        page.note(x, grid.y(row) - 0.09, name)
        page.put(page.width - MARGIN, grid.y(row) - 0.09, f"{count:,}", style.SMALL, ha="right")
        grid.area((row, row + 1), (0, count), color)


def draw_key_tiles(
    rows: list[tuple[int, int, int]], num_q: int, num_k: int, tile_q: int, tile_k: int
) -> Figure:
    """Draw which tiles of keys each tile of queries sees whole, in part, or not.

    Args:
        rows: for each tile of queries, (its first row, whole, seen).
    """
    unit = SIDE / max(num_q, num_k, 1)
    left, top = MARGIN + 0.1, MARGIN + 0.28
    page = Page(left + num_k * unit + 2.1, top + max(num_q * unit, 1.0) + MARGIN)
    page.note(left, MARGIN + 0.08, "keys →, queries ↓")
    grid = page.grid(left, top, unit, unit, 0.015)
    kinds = {
        "whole: no mask": style.tint(style.SKY, 0.75),
        "in part: masked": style.tint(style.ORANGE, 0.75),
        "not at all: skipped": style.tint(style.INK, 0.22),
    }
    whole_color, part_color, none_color = kinds.values()
    for start, whole, seen in rows:
        for j in range(-(-num_k // tile_k)):
            color = whole_color if j < whole else part_color if j < seen else none_color
            queries, keys = (start, min(start + tile_q, num_q)), (j, j + 1)
            grid.area(queries, tuple(min(k * tile_k, num_k) for k in keys), color)
    draw_mask(grid, num_q, num_k)
    page.legend(grid.x(num_k) + 0.25, top + 0.14, kinds, down=True)
    every = -(-num_k // tile_k)
    each = (
        f"from query {start}: {whole} whole, {seen - whole} in part, {every - seen} not at all"
        for start, whole, seen in rows
    )
    page.say(f"Tiles of {tile_k} keys that each tile of queries sees: {'; '.join(each)}")
    return page.figure


# ---------------------------------------------------------------------------------- flash

Cell = tuple[int, int]


@dataclass(frozen=True)
class TileOwners:
    """Who holds what while a tile of keys is taken in.

    Attributes:
        name: of the rung.
        rows, keys, dims: queries of the tile of queries, keys of the tile of keys, head_dim.
        warps: (first row, rows) of each warp.
        warp: the one that is marked.
        scores, sums: (row, key) and (row, element) of the scores and of the output that the
            marked lane of the marked warp holds in registers.
        shared: the names of what lies in shared memory, of "q", "k", "v"; the rest is read from
            global memory into registers.
        reads_k, reads_v: rows of k (keys) and elements of v that the marked lane reads.
    """

    name: str
    rows: int
    keys: int
    dims: int
    warps: tuple[tuple[int, int], ...]
    warp: int
    scores: tuple[Cell, ...]
    sums: tuple[Cell, ...]
    shared: str
    reads_k: tuple[int, ...]
    reads_v: tuple[int, ...]


def draw_tile_owners(state: TileOwners) -> Figure:
    """Draw scores = q kᵀ and out += weights v, each product with its factors beside and above."""
    side, gap = 1.25, 0.3  # inches of head_dim, and of the longer one of rows and keys
    rows, keys, dims = ((0, number) for number in (state.rows, state.keys, state.dims))
    unit, thin = side / max(state.rows, state.keys), side / state.dims
    height, width = state.rows * unit, state.keys * unit
    s_x, bottom = MARGIN + side + gap, 0.5 + side + gap
    o_x = s_x + max(width, 0.62) + gap
    page = Page(o_x + side + MARGIN, bottom + height + 0.5)
    page.put(MARGIN, 0.18, state.name, weight="bold")
    grids = {
        "q": (page.grid(MARGIN, bottom, thin, unit), rows, dims, "q"),
        "k": (page.grid(s_x, bottom - gap - side, unit, thin), dims, keys, "k, transposed"),
        "v": (page.grid(o_x, bottom - gap - width, thin, unit), keys, dims, "v"),
        "s": (page.grid(s_x, bottom, unit, unit), rows, keys, "scores"),
        "o": (page.grid(o_x, bottom, thin, unit), rows, dims, "out"),
    }
    of_memory = {True: style.tint(style.GREEN, 0.16), False: style.WASH}
    read, of_warp = style.tint(style.ORANGE, 0.55), style.tint(style.BLUE, 0.3)
    first, count = state.warps[state.warp]
    for key, (grid, down, across, title) in grids.items():
        face = of_memory[key in state.shared] if key in "qkv" else style.tint(style.SKY, 0.16)
        grid.area(down, across, face, edge=style.MUTED, line=0.7)
        page.put(grid.left, grid.top - 0.09, title, style.SMALL, weight="bold")
        if key in "qso":
            for row, _ in state.warps[1:]:
                ends = [grid.x(0), grid.x(across[1])]
                page.plot(ends, [grid.y(row)] * 2, color=style.FAINT, lw=0.5)
            grid.area((first, first + count), across, read if key == "q" else of_warp)
    for key in state.reads_k:
        grids["k"][0].area(dims, (key, key + 1), read)
    for element in state.reads_v:
        grids["v"][0].area(keys, (element, element + 1), read)
    for name, cells in (("s", state.scores), ("o", state.sums)):
        for row, column in cells:
            grids[name][0].cell(row, column, style.BLUE)
    memories = {"shared memory": of_memory[True], "global memory": of_memory[False]}
    present = {"shared memory": state.shared, "global memory": len(state.shared) < 3}
    kinds = {name: face for name, face in memories.items() if present[name]}
    kinds |= {f"registers of warp {state.warp}": of_warp}
    page.legend(MARGIN, bottom + height + 0.2, kinds)
    page.legend(MARGIN, bottom + height + 0.4, {"of one lane": style.BLUE, "read for it": read})
    page.say(
        f"{state.name}: scores of {state.rows} queries and {state.keys} keys, head_dim "
        f"{state.dims}; {style.some(state.shared) or 'nothing'} in shared memory"
    )
    page.say(
        f"Warp {state.warp} has {style.count(count, 'row')}, one of its lanes "
        f"{style.count(len(state.scores), 'score')} and {style.count(len(state.sums), 'element')} "
        f"of out; it reads {style.count(len(state.reads_k), 'key')}, and {len(state.reads_v)} of "
        f"the {state.dims} elements of each value"
    )
    return page.figure
