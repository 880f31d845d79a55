"""Grids of a launch: threads, programs and the tiles that they own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page
from yaie.course.viz.style import BLUE, FAINT, INK, MUTED, PAPER, SMALL, VERMILION, WASH, tint

MARGIN = 0.12
CELL = 0.25  # one thread, or one lane
TOP = 0.58
WARP = 32


def _number_lanes(grid: Grid, lanes: int) -> None:
    for lane in range(0, lanes, 4):
        grid.head(lane, str(lane))
    grid.ax.note(grid.left - 0.12, grid.top - 0.1, "lane", "right")


# ---------------------------------------------------------------------------------- threads

MOST_WARPS = 24


@dataclass(frozen=True)
class Launch:
    """A kernel's launch over a one-dimensional tensor.

    Attributes:
        num_elements: how many elements the tensor has.
        threads: threads of each thread block.
        thread_blocks: how many there are; by default enough for one thread per element.
        element: which element a thread takes: `element(thread_block, thread)`.
    """

    num_elements: int
    threads: int
    thread_blocks: int | None = None
    element: Callable[[int, int], int] | None = None

    @property
    def grid(self) -> int:
        if self.thread_blocks is not None:
            return self.thread_blocks
        return -(-self.num_elements // self.threads)

    def taken_by(self, thread_block: int, thread: int) -> int:
        if self.element is not None:
            return self.element(thread_block, thread)
        return thread_block * self.threads + thread


def draw_grid(launch: Launch) -> Figure:
    """Draw every thread of a launch as a cell with the number of its element.

    A row is a warp, a color a thread block. Threads whose element does not exist are gray.
    """
    if not 1 <= launch.threads <= 1024:
        raise ValueError(f"threads must be from 1 to 1,024, got {launch.threads}")
    warps = -(-launch.threads // WARP)
    rows = warps * launch.grid
    if not 1 <= rows <= MOST_WARPS:
        raise ValueError(f"a launch of 1 to {MOST_WARPS} warps can be drawn, got {rows}")
    left, gap = 1.62, 0.14  # inches; `gap` between thread blocks
    page = Page(left + WARP * CELL + MARGIN, TOP + rows * CELL + launch.grid * gap)
    grid = page.grid(left, TOP, CELL, CELL, 0.03)
    _number_lanes(grid, WARP)
    idle = 0
    for block in range(launch.grid):
        first = block * (warps + gap / CELL)
        page.put(MARGIN, grid.middle(first), f"thread block {block}", SMALL, weight="bold")
        for thread in range(launch.threads):
            warp, lane = divmod(thread, WARP)
            if lane == 0:
                grid.name(first + warp, f"warp {warp}", color=MUTED)
            element = launch.taken_by(block, thread)
            face, ink = tint(style.series_color(block), 0.45), INK
            if not 0 <= element < launch.num_elements:
                face, ink = WASH, MUTED
                idle += 1
            grid.cell(first + warp, lane, face, str(element), size=6.2, color=ink)
    words = (
        f"{style.count(launch.grid, 'thread block')} of {launch.threads} threads for "
        f"{style.count(launch.num_elements, 'element')}"
    )
    page.put(MARGIN, 0.16, words, weight="bold")
    if idle:
        note = f"{style.count(idle, 'thread')} past the end (gray)"
        page.note(page.width - MARGIN, 0.16, note, "right")
    page.say(f"{words}, in warps of {WARP}; {idle or 'none'} past the end")
    return page.figure


def draw_written(got, want, title: str = "") -> Figure:
    """Draw the elements of an output, 32 in a row: right, wrong, or as it was before the launch.

    Args:
        got: one-dimensional, filled with NaN before the launch.
        want: what it should be.
    """
    got, want = style.numbers(got, "got", 1), style.numbers(want, "want", 1)
    if got.shape != want.shape:
        raise ValueError(f"got must have {want.size} elements, as want has, got {got.size}")
    right = (got == want) | (np.isnan(got) & np.isnan(want))
    unwritten = np.isnan(got) & ~right
    kinds = [
        ("right", right, tint(BLUE, 0.55)),
        ("wrong", ~right & ~unwritten, VERMILION),
        ("never written", unwritten, PAPER),
    ]
    rows = max(1, -(-got.size // WARP))
    size, left, top = min(0.16, 4.5 / rows), 0.75, 0.62
    page = Page(max(left + WARP * size + MARGIN, 6.4), top + rows * size + 0.12)
    page.put(MARGIN, 0.16, title, weight="bold")
    for _, where, face in kinds:
        cells = [
            Rectangle((left + i % WARP * size, top + i // WARP * size), size * 0.9, size * 0.9)
            for i in np.flatnonzero(where)
        ]
        edge = FAINT if face == PAPER else face
        page.ax.add_collection(PatchCollection(cells, facecolor=face, edgecolor=edge, lw=0.5))
    counts = {name: f"{int(where.sum()):,}" for name, where, _ in kinds}
    found = {f"{name}: {counts[name]}": face for name, where, face in kinds if where.any()}
    page.legend(MARGIN, 0.42, found)
    step = max(1, round(0.16 / size))
    for row in range(0, rows, step):
        page.put(left - 0.08, top + (row + 0.5) * size, str(row * WARP), 6.5, MUTED, "right")
    each = (f"{number} {name}" for name, number in counts.items())
    page.say(f"{title}: of {style.count(got.size, 'element')}, {style.some(each)}")
    return page.figure


# ---------------------------------------------------------------------------------- programs

MOST_LANES = 32
MOST_BLOCKS = 24

Lane = tuple[int, bool]  # an element, and whether the mask lets the lane take part


@dataclass(frozen=True)
class Programs:
    """Which elements of a tensor the programs of a launch touch.

    Attributes:
        name: of the tensor.
        num_elements: of the tensor.
        blocks: (program, its lanes), one for each access, in the order of the programs.
    """

    name: str
    num_elements: int
    blocks: tuple[tuple[int, tuple[Lane, ...]], ...]


def programs_of(trace: Any, name: str, kind: str) -> Programs:
    """From a `yaie.course.core.triton.Trace`: the loads, or the stores, of one tensor."""
    accesses = trace.of(name, kind)
    if not trace.accesses:  # without an interpreter there is nothing to see
        return Programs(name, 0, ())
    if not accesses:
        raise ValueError(f"trace must have a {kind} of {name!r}, got none")
    blocks = tuple(
        (
            a.program[0],
            tuple(zip(a.elements.ravel().tolist(), a.mask.ravel().tolist(), strict=True)),
        )
        for a in accesses
    )
    return Programs(name, accesses[0].num_elements, blocks)


def draw_programs(state: Programs) -> Figure:
    """Draw each block as a row of lanes with the number of the element; a color is a program.

    Lanes that the mask keeps out are gray. Lanes that are let in although their element does not
    exist are red.
    """
    if not state.blocks:
        page = Page(4.6, 0.36)
        words = "No program was watched: that takes Triton's interpreter."
        page.say(words)
        page.put(MARGIN, 0.18, words, color=MUTED)
        return page.figure
    lanes = max(len(block) for _, block in state.blocks)
    if lanes > MOST_LANES or len(state.blocks) > MOST_BLOCKS:
        raise ValueError(
            f"at most {MOST_BLOCKS} blocks of {MOST_LANES} lanes can be drawn, got "
            f"{len(state.blocks)} of {lanes}"
        )
    left, pitch = 1.15, CELL + 0.07  # inches
    width = max(left + lanes * CELL + MARGIN, 4.6)
    page = Page(width, TOP + len(state.blocks) * pitch + 0.06)
    grid = page.grid(left, TOP, CELL, pitch, 0.03, 0.1)
    _number_lanes(grid, lanes)
    masked = stray = 0
    for row, (program, block) in enumerate(state.blocks):
        page.put(MARGIN, grid.middle(row), f"program {program}", SMALL, weight="bold")
        for lane, (element, inside) in enumerate(block):
            face, ink = tint(style.series_color(program), 0.45), INK
            if not inside:
                face, ink = WASH, MUTED
                masked += 1
            elif not 0 <= element < state.num_elements:
                face, ink = VERMILION, PAPER
                stray += 1
            grid.cell(row, lane, face, str(element), size=6.2, color=ink)
    programs = style.count(len({program for program, _ in state.blocks}), "program")
    words = f"{programs} on {state.name}, {style.count(state.num_elements, 'element')}"
    page.put(MARGIN, 0.16, words, weight="bold")
    note = f"{style.count(masked, 'lane')} masked (gray)" if masked else ""
    if stray:
        note = f"{style.count(stray, 'lane')} outside (red)"
    page.note(page.width - MARGIN, 0.16, note, "right")
    page.say(f"{words}; {note or 'every lane takes part'}")
    spans = {}
    for program, block in state.blocks:
        spans.setdefault(program, []).extend(element for element, inside in block if inside)
    each = (f"{min(own)} to {max(own)} by program {p}" for p, own in spans.items() if own)
    page.say(f"Elements: {style.some(each)}")
    return page.figure


def draw_traffic(kinds: Mapping[str, Mapping[str, int]]) -> Figure:
    """Draw a bar for each way to compute the same: bytes read, then bytes written.

    Args:
        kinds: name of the way → {"read": bytes, "written": bytes}.
    """
    left, row = 2.1, 0.34
    page = Page(9.0, 0.48 + row * len(kinds))
    most = max(sum(parts.values()) for parts in kinds.values())
    grid = page.grid(left, 0.42, 5.0 / most, row, gap_below=0.1)
    page.legend(left, 0.16, {"bytes read": BLUE, "bytes written": style.ORANGE})
    for number, (name, parts) in enumerate(kinds.items()):
        read, whole = parts["read"], parts["read"] + parts["written"]
        grid.name(number, name, style.BODY)
        grid.area((number, number + 1), (0, read), BLUE)
        grid.area((number, number + 1), (read, whole), style.ORANGE)
        page.put(grid.x(whole) + 0.1, grid.middle(number), f"{whole:,}", SMALL)
    each = (
        f"{name}: {parts['read']:,} bytes read, {parts['written']:,} written"
        for name, parts in kinds.items()
    )
    page.say("; ".join(each))
    return page.figure
