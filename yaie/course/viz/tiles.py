"""Attention in tiles: what is loaded, what is computed, and who holds what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

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


def draw_tiles(state: TileStep, at: Place | None = None) -> Figure:
    """Draw the matrix that is never stored, the tile being computed, and the bytes so far."""
    unit = SIDE / max(state.num_q, state.num_k, 1)
    left, top = MARGIN + 0.28 + STRIP + 0.06, MARGIN + 0.2 + STRIP + 0.06
    height, width = state.num_q * unit, state.num_k * unit
    meters = left + width + 0.3
    page = Page(meters + METERS, max(top + height, 2.6) + MARGIN, at)
    ax = page.ax
    _draw_strips(ax, state, left, top, unit)
    ax.rect(left, top, width, height, style.PAPER)
    finished = max((rows[1] for rows, _ in state.done), default=0)
    if state.current and state.current[0][0] < finished:
        finished = state.current[0][0]
    ax.rect(left, top, width, finished * unit, style.tint(style.INK, 0.22))
    for rows, columns in state.done:
        _tile(ax, left, top, unit, rows, columns, style.tint(style.SKY, 0.6))
    if state.current:
        _tile(ax, left, top, unit, *state.current, style.BLUE)
    if state.causal:
        _draw_mask(ax, state, left, top, unit)
    ax.rect(left, top, width, height, "none", edgecolor=style.MUTED, lw=0.8)
    _draw_meters(ax, state, meters, top)
    moved = dict(state.moved)
    words = (
        f"{style.count(len(state.done), 'tile')} of the {state.num_q} × {state.num_k} scores done"
    )
    if state.current:
        (row, row_end), (key, key_end) = state.current
        words += f", now queries {row} to {row_end - 1} and keys {key} to {key_end - 1}"
    stored = f"; with scores stored, {state.naive:,}" if state.naive else ""
    page.say(f"{words}; {sum(moved.values()):,} bytes moved so far{stored}")
    return page.figure


def _tile(ax: Axes, left: float, top: float, unit: float, rows: Span, columns: Span, color) -> None:
    corner = left + columns[0] * unit, top + rows[0] * unit
    ax.rect(
        *corner, (columns[1] - columns[0]) * unit - 0.015, (rows[1] - rows[0]) * unit - 0.015, color
    )


def _draw_strips(ax: Axes, state: TileStep, left: float, top: float, unit: float) -> None:
    """Q beside the matrix, K and V above, with the tiles that are loaded."""
    x, y = left - STRIP - 0.06, top - STRIP - 0.06
    wash = {"facecolor": style.WASH, "edgecolor": style.FAINT, "lw": 0.6}
    ax.rect(x, top, STRIP, state.num_q * unit, **wash)
    ax.rect(left, y, state.num_k * unit, STRIP, **wash)
    ax.put(x - 0.06, top + 0.08, "Q", style.BODY, style.ORANGE, "right", weight="bold")
    ax.put(left, y - 0.1, "K and V", style.BODY, style.GREEN, weight="bold")
    if state.current:
        (row, row_end), (column, column_end) = state.current
        ax.rect(
            x,
            top + row * unit,
            STRIP,
            (row_end - row) * unit,
            face=style.ORANGE,
            edgecolor=style.ORANGE,
        )
        ax.rect(
            left + column * unit,
            y,
            (column_end - column) * unit,
            STRIP,
            face=style.GREEN,
            edgecolor=style.GREEN,
        )


def _draw_mask(ax: Axes, state: TileStep, left: float, top: float, unit: float) -> None:
    """Hatch the keys that come after their query: a staircase that ends bottom-right."""
    past = state.num_k - state.num_q
    right = left + state.num_k * unit
    corners = [(right, top)]
    for row in range(state.num_q):
        edge = left + min(max(past + row + 1, 0), state.num_k) * unit
        corners += [(edge, top + row * unit), (edge, top + (row + 1) * unit)]
    corners.append((right, top + state.num_q * unit))
    ax.add_artist(
        Polygon(
            corners, facecolor="none", hatch="//////", edgecolor=style.tint(style.INK, 0.3), lw=0
        )
    )


def _draw_meters(ax: Axes, state: TileStep, x: float, y: float) -> None:
    """A line for each tensor: its name, the bytes that moved, a bar."""
    words = {"q": "Q read", "k": "K read", "v": "V read", "other": "else read", "out": "written"}
    colors = {"q": style.ORANGE, "k": style.GREEN, "v": style.GREEN, "out": style.VERMILION}
    longest = max(1, state.naive, sum(n for _, n in state.moved))
    lines = [(words.get(name, name), n, colors.get(name, style.MUTED)) for name, n in state.moved]
    lines.append(("in all", sum(n for _, n in state.moved), style.INK))
    if state.naive:
        lines.append(("with scores stored", state.naive, style.FAINT))
    for i, (name, count, color) in enumerate(lines):
        at = y - 0.2 + i * 0.385
        ax.note(x, at, name)
        ax.put(x + METERS - MARGIN, at, f"{count:,}", style.SMALL, style.INK, "right")
        length = (METERS - MARGIN) * count / longest
        ax.rect(x, at + 0.09, length, 0.12, color)


def draw_key_tiles(
    rows: list[tuple[int, int, int]],
    num_q: int,
    num_k: int,
    tile_q: int,
    tile_k: int,
    at: Place | None = None,
) -> Figure:
    """Draw which tiles of keys each tile of queries sees whole, in part, or not.

    Args:
        rows: for each tile of queries, (its first row, whole, seen).
    """
    unit = SIDE / max(num_q, num_k, 1)
    left, top = MARGIN + 0.1, MARGIN + 0.28
    page = Page(left + num_k * unit + 2.1, top + max(num_q * unit, 1.0) + MARGIN, at)
    ax = page.ax
    ax.note(left, MARGIN + 0.08, "keys →, queries ↓")
    kinds = {
        "whole: no mask": style.tint(style.SKY, 0.75),
        "in part: masked": style.tint(style.ORANGE, 0.75),
        "not at all: skipped": style.tint(style.INK, 0.22),
    }
    whole_color, part_color, none_color = kinds.values()
    for start, whole, seen in rows:
        for j in range(-(-num_k // tile_k)):
            color = whole_color if j < whole else part_color if j < seen else none_color
            span = (start, min(start + tile_q, num_q)), (j * tile_k, min((j + 1) * tile_k, num_k))
            _tile(ax, left, top, unit, *span, color)
    state = TileStep(num_q, num_k, True, None, (), ())
    _draw_mask(ax, state, left, top, unit)
    for i, (words, color) in enumerate(kinds.items()):
        y = top + 0.05 + i * 0.28
        x = left + num_k * unit + 0.25
        ax.rect(x, y, 0.18, 0.18, color)
        ax.put(x + 0.26, y + 0.1, words)
    every = -(-num_k // tile_k)
    each = (
        f"from query {start}: {whole} whole, {seen - whole} in part, {every - seen} not at all"
        for start, whole, seen in rows
    )
    page.say(f"Tiles of {tile_k} keys that each tile of queries sees: {'; '.join(each)}")
    return page.figure


# ---------------------------------------------------------------------------------- flash

FLASH_MARGIN = 0.16
GAP = 0.3
FLASH_SIDE = 1.25  # inches of head_dim, and of the longer one of rows and keys

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


def draw_tile_owners(state: TileOwners, at: Place | None = None) -> Figure:
    """Draw scores = q kᵀ and out += weights v, each product with its factors beside and above."""
    unit, thin = FLASH_SIDE / max(state.rows, state.keys), FLASH_SIDE / state.dims
    height, width = state.rows * unit, state.keys * unit
    q_x, s_x = FLASH_MARGIN, FLASH_MARGIN + FLASH_SIDE + GAP
    o_x, bottom = s_x + max(width, 0.62) + GAP, 0.5 + FLASH_SIDE + GAP
    page = Page(o_x + FLASH_SIDE + FLASH_MARGIN, bottom + height + 0.5, at)
    ax = page.ax
    ax.put(FLASH_MARGIN, 0.18, state.name, weight="bold")
    first, count = state.warps[state.warp]
    boxes = {
        "q": (q_x, bottom, FLASH_SIDE, height, "q"),
        "k": (s_x, bottom - GAP - FLASH_SIDE, width, FLASH_SIDE, "k, transposed"),
        "v": (o_x, bottom - GAP - width, FLASH_SIDE, width, "v"),
        "s": (s_x, bottom, width, height, "scores"),
        "o": (o_x, bottom, FLASH_SIDE, height, "out"),
    }
    for key, (x, y, w, h, title) in boxes.items():
        face = style.tint(style.GREEN if key in state.shared else style.SKY, 0.16)
        face = style.WASH if key in "qkv" and key not in state.shared else face
        ax.rect(x, y, w, h, face, edgecolor=style.MUTED, lw=0.7)
        ax.put(x, y - 0.09, title, style.SMALL, weight="bold")
    for row, rows in state.warps[1:]:
        for key in "qso":
            x, y, w, *_ = boxes[key]
            ax.plot([x, x + w], [y + row * unit] * 2, color=style.FAINT, lw=0.5)
        del rows
    mark = style.tint(style.ORANGE, 0.55)
    for key in "qso":
        x, y, w, *_ = boxes[key]
        color = mark if key == "q" else style.tint(style.BLUE, 0.3)
        ax.rect(x, y + first * unit, w, count * unit, color)
    x, y, *_ = boxes["k"]
    for key in state.reads_k:
        ax.rect(x + key * unit, y, unit, FLASH_SIDE, mark)
    x, y, *_ = boxes["v"]
    for d in state.reads_v:
        ax.rect(x + d * thin, y, thin, width, mark)
    for key, cells, across in (("s", state.scores, unit), ("o", state.sums, thin)):
        x, y, *_ = boxes[key]
        for row, column in cells:
            place = (x + column * across, y + row * unit)
            ax.add_artist(Rectangle(place, across, unit, facecolor=style.BLUE))
    _legend(page, state, bottom + height + 0.2)
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


def _legend(page: Page, state: TileOwners, y: float) -> None:
    """What the colors mean, as far as they occur."""
    kinds: Sequence[tuple[object, str]] = (
        *([(style.tint(style.GREEN, 0.16), "shared memory")] if state.shared else []),
        *([(style.WASH, "global memory")] if len(state.shared) < 3 else []),
        (style.tint(style.BLUE, 0.3), f"registers of warp {state.warp}"),
        (style.BLUE, "of one lane"),
        (style.tint(style.ORANGE, 0.55), "read for it"),
    )
    x = FLASH_MARGIN
    for color, words in kinds:
        length = 0.26 + style.text_width(words, style.SMALL)
        if x + length > page.width:
            x, y = FLASH_MARGIN, y + 0.2
        ax = page.ax
        box = Rectangle((x, y - 0.07), 0.13, 0.13, facecolor=color, edgecolor=style.MUTED, lw=0.4)
        ax.add_artist(box)
        ax.put(x + 0.18, y, words, style.SMALL)
        x += length + 0.12
