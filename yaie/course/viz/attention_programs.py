"""Programs of attention: the tiles that each owns, and the multiprocessors that they fill."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page
from yaie.course.viz.tiles import draw_mask

MARGIN = 0.14
SIDE = 2.1  # inches of the longer side of the matrix

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


def draw_program_tiles(state: ProgramTiles) -> Figure:
    """Draw the tiles that were computed; a color is a program, the last tile is the darkest."""
    unit = SIDE / max(state.num_q, state.num_k, 1)
    left, top = MARGIN + 0.1, MARGIN + 0.26
    width, height = state.num_k * unit, state.num_q * unit
    page = Page(left + width + 2.1, top + max(height, 1.0) + MARGIN)
    page.note(left, MARGIN + 0.07, "keys →, queries ↓")
    grid = page.grid(left, top, unit, unit, 0.015)
    grid.area((0, state.num_q), (0, state.num_k), style.WASH)
    for number, (program, rows, keys) in enumerate(state.tiles):
        last = number == len(state.tiles) - 1
        grid.area(rows, keys, style.tint(style.series_color(program), 0.95 if last else 0.55))
    if state.causal:
        draw_mask(grid, state.num_q, state.num_k)
    counts = Counter(program for program, _, _ in sorted(state.tiles))
    kinds = {
        f"program {program}: {style.count(count, 'tile')}": style.tint(
            style.series_color(program), 0.75
        )
        for program, count in counts.items()
    }
    page.legend(left + width + 0.22, top + 0.1, kinds, down=True)
    each = (f"{count} by program {program}" for program, count in counts.items())
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
    processor: str = "SM"


def draw_occupied(state: Occupied) -> Figure:
    """Draw the processors as cells, filled one program each, in rounds if there are more."""
    columns, side = 22, 0.2
    rows = -(-state.processors // columns)
    page = Page(columns * side + 2 * MARGIN, 0.76 + rows * side)
    busy = min(len(state.owners), state.processors)
    words = (
        f"{style.count(len(state.owners), state.program)}, "
        f"{busy} of {state.processors} {state.processor}s"
    )
    page.put(MARGIN, 0.18, words, weight="bold")
    grid = page.grid(MARGIN, 0.36, side, side, 0.03)
    for number in range(state.processors):
        face = style.many_colors(state.owners[number]) if number < busy else style.WASH
        grid.cell(*divmod(number, columns), face)
    rounds = len(state.owners) / state.processors
    note = f"a color is a {state.noun}"
    if rounds > 1:
        note += f"; {rounds:.1f} {state.program}s for each {state.processor}"
    page.note(MARGIN, page.height - 0.16, note)
    page.say(f"{words} busy; {note}")
    return page.figure
