"""Attention in tiles: queries stay, keys and values pass by, and the bytes are counted beside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from yaie.course.viz import style

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


def draw_tiles(state: TileStep, at: style.Place | None = None) -> Figure:
    """Draw the matrix that is never stored, the tile being computed, and the bytes so far."""
    unit = SIDE / max(state.num_q, state.num_k, 1)
    left, top = MARGIN + 0.28 + STRIP + 0.06, MARGIN + 0.2 + STRIP + 0.06
    height, width = state.num_q * unit, state.num_k * unit
    meters = left + width + 0.3
    page = style.Page(meters + METERS, max(top + height, 2.6) + MARGIN, at)
    ax = page.ax
    _draw_strips(ax, state, left, top, unit)
    ax.add_artist(Rectangle((left, top), width, height, facecolor=style.PAPER))
    finished = max((rows[1] for rows, _ in state.done), default=0)
    if state.current and state.current[0][0] < finished:
        finished = state.current[0][0]
    ax.add_artist(
        Rectangle((left, top), width, finished * unit, facecolor=style.tint(style.INK, 0.22))
    )
    for rows, columns in state.done:
        _tile(ax, left, top, unit, rows, columns, style.tint(style.SKY, 0.6))
    if state.current:
        _tile(ax, left, top, unit, *state.current, style.BLUE)
    if state.causal:
        _draw_mask(ax, state, left, top, unit)
    ax.add_artist(
        Rectangle((left, top), width, height, facecolor="none", edgecolor=style.MUTED, lw=0.8)
    )
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
    ax.add_artist(
        Rectangle(
            (left + columns[0] * unit, top + rows[0] * unit),
            (columns[1] - columns[0]) * unit - 0.015,
            (rows[1] - rows[0]) * unit - 0.015,
            facecolor=color,
        )
    )


def _draw_strips(ax: Axes, state: TileStep, left: float, top: float, unit: float) -> None:
    """Q beside the matrix, K and V above, with the tiles that are loaded."""
    x, y = left - STRIP - 0.06, top - STRIP - 0.06
    wash = {"facecolor": style.WASH, "edgecolor": style.FAINT, "lw": 0.6}
    ax.add_artist(Rectangle((x, top), STRIP, state.num_q * unit, **wash))
    ax.add_artist(Rectangle((left, y), state.num_k * unit, STRIP, **wash))
    style.put(ax, x - 0.06, top + 0.08, "Q", style.BODY, style.ORANGE, "right", weight="bold")
    style.put(ax, left, y - 0.1, "K and V", style.BODY, style.GREEN, weight="bold")
    if state.current:
        (row, row_end), (column, column_end) = state.current
        ax.add_artist(
            Rectangle((x, top + row * unit), STRIP, (row_end - row) * unit, color=style.ORANGE)
        )
        ax.add_artist(
            Rectangle(
                (left + column * unit, y), (column_end - column) * unit, STRIP, color=style.GREEN
            )
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
        style.put(ax, x, at, name, style.SMALL, style.MUTED)
        style.put(ax, x + METERS - MARGIN, at, f"{count:,}", style.SMALL, style.INK, "right")
        length = (METERS - MARGIN) * count / longest
        ax.add_artist(Rectangle((x, at + 0.09), length, 0.12, facecolor=color))


def draw_key_tiles(
    rows: list[tuple[int, int, int]],
    num_q: int,
    num_k: int,
    tile_q: int,
    tile_k: int,
    at: style.Place | None = None,
) -> Figure:
    """Draw which tiles of keys each tile of queries sees whole, in part, or not.

    Args:
        rows: for each tile of queries, (its first row, whole, seen).
    """
    unit = SIDE / max(num_q, num_k, 1)
    left, top = MARGIN + 0.1, MARGIN + 0.28
    page = style.Page(left + num_k * unit + 2.1, top + max(num_q * unit, 1.0) + MARGIN, at)
    ax = page.ax
    style.put(ax, left, MARGIN + 0.08, "keys →, queries ↓", style.SMALL, style.MUTED)
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
        ax.add_artist(Rectangle((x, y), 0.18, 0.18, facecolor=color))
        style.put(ax, x + 0.26, y + 0.1, words, style.BODY)
    every = -(-num_k // tile_k)
    each = (
        f"from query {start}: {whole} whole, {seen - whole} in part, {every - seen} not at all"
        for start, whole, seen in rows
    )
    page.say(f"Tiles of {tile_k} keys that each tile of queries sees: {'; '.join(each)}")
    return page.figure
