"""Programs of attention: the tiles that each owns, and the multiprocessors that they fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place
from yaie.course.viz.style import (
    INK,
    SMALL,
    WASH,
    series_color,
    tint,
)

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


def draw_program_tiles(state: ProgramTiles, at: Place | None = None) -> Figure:
    """Draw the tiles that were computed; a color is a program, the last tile is the darkest."""
    unit = SIDE / max(state.num_q, state.num_k, 1)
    left, top = MARGIN + 0.1, MARGIN + 0.26
    width, height = state.num_k * unit, state.num_q * unit
    page = Page(left + width + 2.1, top + max(height, 1.0) + MARGIN, at)
    ax = page.ax
    ax.note(left, MARGIN + 0.07, "keys →, queries ↓")
    ax.rect(left, top, width, height, WASH)
    for number, (program, rows, keys) in enumerate(state.tiles):
        last = number == len(state.tiles) - 1
        color = tint(series_color(program), 0.95 if last else 0.55)
        corner = left + keys[0] * unit, top + rows[0] * unit
        ax.rect(
            *corner, (keys[1] - keys[0]) * unit - 0.015, (rows[1] - rows[0]) * unit - 0.015, color
        )
    if state.causal:
        past, right = state.num_k - state.num_q, left + width
        corners = [(right, top)]
        for row in range(state.num_q):
            edge = left + min(max(past + row + 1, 0), state.num_k) * unit
            corners += [(edge, top + row * unit), (edge, top + (row + 1) * unit)]
        corners.append((right, top + height))
        ax.add_artist(
            Polygon(corners, facecolor="none", hatch="//////", edgecolor=tint(INK, 0.3), lw=0)
        )
    programs = sorted({program for program, _, _ in state.tiles})
    for i, program in enumerate(programs):
        count = sum(p == program for p, _, _ in state.tiles)
        y, x = top + 0.02 + i * 0.24, left + width + 0.22
        color = tint(series_color(program), 0.75)
        ax.rect(x, y, 0.16, 0.16, color)
        words = f"program {program}: {style.count(count, 'tile')}"
        ax.put(x + 0.24, y + 0.09, words, SMALL)
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


def draw_occupied(state: Occupied, at: Place | None = None) -> Figure:
    """Draw the processors as cells, filled one program each, in rounds if there are more."""
    columns = 22
    rows = -(-state.processors // columns)
    page = Page(columns * CELL + 2 * MARGIN, 0.4 + rows * CELL + 0.36, at)
    ax = page.ax
    busy = min(len(state.owners), state.processors)
    words = (
        f"{style.count(len(state.owners), state.program)}, "
        f"{busy} of {state.processors} {state.processor}s"
    )
    ax.put(MARGIN, 0.18, words, weight="bold")
    for cell in range(state.processors):
        row, column = divmod(cell, columns)
        color = WASH
        if cell < len(state.owners):
            owner = state.owners[cell]
            repeated = owner // len(style.SERIES) % 2  # the seventh color is a paler first
            color = tint(series_color(owner), 0.4 if repeated else 0.85)
        corner = MARGIN + column * CELL, 0.36 + row * CELL
        ax.rect(*corner, CELL - 0.03, CELL - 0.03, color)
    rounds = len(state.owners) / state.processors
    note = f"a color is a {state.noun}"
    if rounds > 1:
        note += f"; {rounds:.1f} {state.program}s for each {state.processor}"
    ax.note(MARGIN, page.height - 0.16, note)
    page.say(f"{words} busy; {note}")
    return page.figure
