"""A launch: thread blocks, their warps, and the element that each thread takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style

MARGIN = 0.12
LEFT = 1.62  # where the lanes begin
CELL = 0.25  # one thread
GAP = 0.14  # between thread blocks
TOP = 0.58
WARP = 32
MOST_WARPS = 24


@dataclass(frozen=True)
class Launch:
    """A kernel's launch over a one-dimensional tensor.

    Attributes:
        num_elements: how many elements the tensor has.
        threads: threads of each thread block.
        thread_blocks: how many there are; enough for one thread an element if left out.
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


def draw_grid(launch: Launch, at: style.Place | None = None) -> Figure:
    """Draw every thread of a launch as a cell with the number of its element.

    A row is a warp, a color a thread block. Threads whose element does not exist are gray.
    """
    if not 1 <= launch.threads <= 1024:
        raise ValueError(f"threads must be from 1 to 1,024, got {launch.threads}")
    warps = -(-launch.threads // WARP)
    if not 1 <= warps * launch.grid <= MOST_WARPS:
        raise ValueError(f"a launch of 1 to {MOST_WARPS} warps can be drawn, got "
                         f"{warps * launch.grid}")  # fmt: skip
    rows = warps * launch.grid
    page = style.Page(LEFT + WARP * CELL + MARGIN, TOP + rows * CELL + launch.grid * GAP, at)
    idle = 0
    for lane in range(0, WARP, 4):
        style.put(page.ax, LEFT + (lane + 0.5) * CELL - 0.015, TOP - 0.1, str(lane), 6.5,
                  style.MUTED, "center")  # fmt: skip
    style.put(page.ax, LEFT - 0.12, TOP - 0.1, "lane", style.SMALL, style.MUTED, "right")
    for block in range(launch.grid):
        y = TOP + block * (warps * CELL + GAP)
        color = style.series_color(block)
        style.put(page.ax, MARGIN, y + CELL / 2, f"thread block {block}", style.SMALL, style.INK,
                  weight="bold")  # fmt: skip
        for thread in range(launch.threads):
            warp, lane = divmod(thread, WARP)
            row = y + warp * CELL
            if lane == 0:
                style.put(page.ax, LEFT - 0.12, row + CELL / 2, f"warp {warp}", style.SMALL,
                          style.MUTED, "right")  # fmt: skip
            element = launch.taken_by(block, thread)
            inside = 0 <= element < launch.num_elements
            idle += not inside
            face = style.tint(color, 0.45) if inside else style.WASH
            x = LEFT + lane * CELL
            page.ax.add_artist(Rectangle((x, row), CELL - 0.03, CELL - 0.03, facecolor=face))
            style.put(page.ax, x + CELL / 2 - 0.015, row + CELL / 2 - 0.015, str(element), 6.2,
                      style.INK if inside else style.FAINT, "center")  # fmt: skip
    words = (
        f"{style.count(launch.grid, 'thread block')} of {launch.threads} threads for "
        f"{style.count(launch.num_elements, 'element')}"
    )
    style.put(page.ax, MARGIN, 0.16, words, style.BODY, weight="bold")
    if idle:
        note = f"{style.count(idle, 'thread')} past the end (gray)"
        style.put(page.ax, page.width - MARGIN, 0.16, note, style.SMALL, style.MUTED, "right")
    page.say(f"{words}, in warps of {WARP}; {idle or 'none'} past the end")
    return page.figure


def draw_written(got, want, title: str = "", at: style.Place | None = None) -> Figure:
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
        ("right", right, style.tint(style.BLUE, 0.55)),
        ("wrong", ~right & ~unwritten, style.VERMILION),
        ("never written", unwritten, style.PAPER),
    ]
    size = min(0.16, 4.5 / max(1, -(-got.size // WARP)))
    left, top = 0.75, 0.62
    rows = max(1, -(-got.size // WARP))
    page = style.Page(max(left + WARP * size + MARGIN, 6.4), top + rows * size + 0.12, at)
    style.put(page.ax, MARGIN, 0.16, title, style.BODY, weight="bold")
    x = MARGIN
    for name, where, face in kinds:
        cells = [
            Rectangle((left + i % WARP * size, top + i // WARP * size), size * 0.9, size * 0.9)
            for i in np.flatnonzero(where)
        ]
        edge = style.FAINT if face == style.PAPER else face
        page.ax.add_collection(PatchCollection(cells, facecolor=face, edgecolor=edge, lw=0.5))
        if where.any():
            style.box(page.ax, x, 0.35, 0.12, 0.12, face, edge, 0.5, 0.0)
            words = f"{name}: {int(where.sum()):,}"
            style.put(page.ax, x + 0.18, 0.42, words, style.SMALL, style.MUTED)
            x += 0.5 + style.text_width(words, style.SMALL)
    step = max(1, round(0.16 / size))
    for row in range(0, rows, step):
        style.put(page.ax, left - 0.08, top + (row + 0.5) * size, str(row * WARP), 6.5,
                  style.MUTED, "right")  # fmt: skip
    each = (f"{int(where.sum()):,} {name}" for name, where, _ in kinds)
    page.say(f"{title}: of {style.count(got.size, 'element')}, {style.some(each)}")
    return page.figure
