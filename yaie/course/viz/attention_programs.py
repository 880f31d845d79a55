"""The programs of an attention kernel: their tiles of the scores, and processors left idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from yaie.course.viz import style

MARGIN = 0.14
SIDE = 2.1  # inches of the longer side of the matrix
CELL = 0.2  # a processor

Span = tuple[int, int]


@dataclass(frozen=True)
class ProgramTiles:
    """What some programs of one head have computed.

    Attributes:
        num_q, num_k: rows and columns of the matrix of scores.
        tiles: (program, its queries, its keys), a tile each, in the order of computation.
        causal: whether to hatch the keys that come after their query.
    """

    num_q: int
    num_k: int
    tiles: tuple[tuple[int, Span, Span], ...]
    causal: bool


def tiles_of(
    trace: Any, head: int, num_q: int, num_k: int, token_size: int, kv_token_size: int, causal: bool
) -> ProgramTiles:
    """From a `yaie.course.core.triton.Trace` of tensors named q and k, the tiles of one head.

    Programs have the number of their tile of queries first, the head second.

    Args:
        token_size, kv_token_size: elements of one token in q, and in k.
    """
    tiles: list[tuple[int, Span, Span]] = []
    rows: Span = (0, 0)
    for access in trace.accesses:
        if access.program[1] != head or access.kind != "load" or not access.mask.any():
            continue
        if access.name == "q":
            rows = _span(access, token_size)
        elif access.name == "k":
            tiles.append((access.program[0], rows, _span(access, kv_token_size)))
    return ProgramTiles(num_q, num_k, tuple(tiles), causal)


def _span(access: Any, token_size: int) -> Span:
    tokens = np.unique(access.elements[access.mask] // token_size)
    return int(tokens[0]), int(tokens[-1]) + 1


def draw_program_tiles(state: ProgramTiles, at: style.Place | None = None) -> Figure:
    """Draw the tiles that were computed; a color is a program, the last tile is the darkest."""
    unit = SIDE / max(state.num_q, state.num_k, 1)
    left, top = MARGIN + 0.1, MARGIN + 0.26
    width, height = state.num_k * unit, state.num_q * unit
    page = style.Page(left + width + 2.1, top + max(height, 1.0) + MARGIN, at)
    ax = page.ax
    style.put(ax, left, MARGIN + 0.07, "keys →, queries ↓", style.SMALL, style.MUTED)
    ax.add_artist(Rectangle((left, top), width, height, facecolor=style.WASH))
    for number, (program, rows, keys) in enumerate(state.tiles):
        last = number == len(state.tiles) - 1
        color = style.tint(style.series_color(program), 0.95 if last else 0.55)
        ax.add_artist(
            Rectangle(
                (left + keys[0] * unit, top + rows[0] * unit),
                (keys[1] - keys[0]) * unit - 0.015,
                (rows[1] - rows[0]) * unit - 0.015,
                facecolor=color,
            )
        )
    if state.causal:
        past, right = state.num_k - state.num_q, left + width
        corners = [(right, top)]
        for row in range(state.num_q):
            edge = left + min(max(past + row + 1, 0), state.num_k) * unit
            corners += [(edge, top + row * unit), (edge, top + (row + 1) * unit)]
        corners.append((right, top + height))
        ax.add_artist(
            Polygon(corners, facecolor="none", hatch="//////", edgecolor=style.tint(style.INK, 0.3),
                    lw=0)
        )  # fmt: skip
    programs = sorted({program for program, _, _ in state.tiles})
    for i, program in enumerate(programs):
        count = sum(p == program for p, _, _ in state.tiles)
        y, x = top + 0.02 + i * 0.24, left + width + 0.22
        color = style.tint(style.series_color(program), 0.75)
        ax.add_artist(Rectangle((x, y), 0.16, 0.16, facecolor=color))
        words = f"program {program}: {style.count(count, 'tile')}"
        style.put(ax, x + 0.24, y + 0.09, words, style.SMALL)
    each = (
        f"{sum(p == program for p, _, _ in state.tiles)} by program {program}"
        for program in programs
    )
    hidden = "; keys after their query are hatched" if state.causal else ""
    page.say(
        f"{style.count(len(state.tiles), 'tile')} of the {state.num_q} × {state.num_k} scores "
        f"computed: {style.some(each)}{hidden}"
    )
    return page.figure


@dataclass(frozen=True)
class Occupied:
    """A launch that finds a number of processors idle.

    Attributes:
        owners: for each program, what it works on (a KV head, say), which gives it its color.
        processors: of the device.
        noun: what an owner is called.
    """

    owners: tuple[int, ...]
    processors: int
    noun: str = "KV head"
    program: str = "program"  # what a program and a processor are called
    processor: str = "processor"


def draw_occupied(state: Occupied, at: style.Place | None = None) -> Figure:
    """Draw the processors as cells, filled one program each, in rounds if there are more."""
    columns = 22
    rows = -(-state.processors // columns)
    page = style.Page(columns * CELL + 2 * MARGIN, 0.4 + rows * CELL + 0.36, at)
    ax = page.ax
    busy = min(len(state.owners), state.processors)
    words = (
        f"{style.count(len(state.owners), state.program)}, "
        f"{busy} of {state.processors} {state.processor}s"
    )
    style.put(ax, MARGIN, 0.18, words, style.BODY, weight="bold")
    for cell in range(state.processors):
        row, column = divmod(cell, columns)
        color = style.WASH
        if cell < len(state.owners):
            owner = state.owners[cell]
            repeated = owner // len(style.SERIES) % 2  # the seventh color is a paler first
            color = style.tint(style.series_color(owner), 0.4 if repeated else 0.85)
        ax.add_artist(
            Rectangle(
                (MARGIN + column * CELL, 0.36 + row * CELL), CELL - 0.03, CELL - 0.03,
                facecolor=color,
            )
        )  # fmt: skip
    rounds = len(state.owners) / state.processors
    note = f"a color is a {state.noun}"
    if rounds > 1:
        note += f"; {rounds:.1f} {state.program}s for each {state.processor}"
    style.put(ax, MARGIN, page.height - 0.16, note, style.SMALL, style.MUTED)
    page.say(f"{words} busy; {note}")
    return page.figure
