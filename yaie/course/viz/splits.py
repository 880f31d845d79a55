"""A long context in splits: which blocks of the pool each part reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place
from yaie.course.viz.style import INK, MUTED, PAPER, SMALL, WASH, series_color, tint

MARGIN = 0.14
WIDTH = 8.6
LEFT = 1.0  # inches, where the context and the pool begin
STRIP = 0.34  # height of the context and of a row of blocks
BLOCKS_A_ROW = 12


@dataclass(frozen=True)
class Part:
    """The keys of one split.

    Attributes:
        start: its first key.
        slots: where its keys lie, block × block_size + offset, in their order.
    """

    start: int
    slots: tuple[int, ...]


def draw_splits(
    parts: Sequence[Part], num_blocks: int, block_size: int, at: Place | None = None
) -> Figure:
    """Draw the context in the order of its tokens, and the pool below; a color is a split.

    A block carries its number in both, so that the table can be read off.
    """
    slots = {part.start + i: slot for part in parts for i, slot in enumerate(part.slots)}
    context = max(slots) + 1
    rows = -(-num_blocks // BLOCKS_A_ROW)
    unit = (WIDTH - LEFT - MARGIN) / (-(-context // block_size) * block_size)
    block_width = (WIDTH - LEFT - MARGIN) / BLOCKS_A_ROW
    pool_top = 0.42 + STRIP + 0.55
    page = Page(WIDTH, pool_top + rows * (STRIP + 0.12) + 0.1, at)
    ax = page.ax
    ax.put(MARGIN, 0.42 + STRIP / 2, "context", weight="bold")
    ax.put(MARGIN, pool_top + STRIP / 2, "pool", weight="bold")
    for first in range(0, context, block_size):
        last = min(first + block_size, context)
        middle, words = (
            LEFT + (first + last) / 2 * unit,
            f"block {slots[first] // block_size}",
        )
        ax.note(middle, 0.42 + STRIP + 0.14, words, "center")
    used = {slot // block_size for slot in slots.values()}
    for block in range(num_blocks):
        x, y = _corner(block, block_width, pool_top)
        box = Rectangle((x, y), block_width - 0.06, STRIP, facecolor=WASH)
        ax.add_artist(box)
        spot = x + block_width / 2 - 0.03, y + STRIP / 2
        ax.put(*spot, str(block), SMALL, INK if block in used else MUTED, "center", zorder=3)
    inner = (block_width - 0.06) / block_size
    for number, part in enumerate(parts):
        color = tint(series_color(number), 0.7)
        length = len(part.slots)
        ax.rect(LEFT + part.start * unit, 0.42, length * unit - 0.02, STRIP, color)
        words = f"split {number}: keys {part.start} to {part.start + length - 1}"
        ax.put(LEFT + part.start * unit, 0.26, words, SMALL, weight="bold")
        for slot in part.slots:
            x, y = _corner(slot // block_size, block_width, pool_top)
            ax.rect(x + slot % block_size * inner, y, inner, STRIP, color)
    for first in range(block_size, context, block_size):
        ax.plot([LEFT + first * unit - 0.01] * 2, [0.42, 0.42 + STRIP], color=PAPER, lw=1.0)
    each = (
        f"split {n}, keys {part.start} to {part.start + len(part.slots) - 1}, blocks "
        + style.some(dict.fromkeys(slot // block_size for slot in part.slots))
        for n, part in enumerate(parts)
    )
    page.say(
        f"{context:,} keys in a pool of {num_blocks} blocks of {block_size}: {'; '.join(each)}"
    )
    return page.figure


def _corner(block: int, width: float, top: float) -> tuple[float, float]:
    row, column = divmod(block, BLOCKS_A_ROW)
    return LEFT + column * width, top + row * (STRIP + 0.12)
