"""A long context in splits: which blocks of the pool each part reads."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page

MARGIN = 0.14


@dataclass(frozen=True)
class Part:
    """The keys of one split.

    Attributes:
        start: its first key.
        slots: where its keys lie, block × block_size + offset, in their order.
    """

    start: int
    slots: tuple[int, ...]


def draw_splits(parts: Sequence[Part], num_blocks: int, block_size: int) -> Figure:
    """Draw the context in the order of its tokens, and the pool below; a color is a split.

    A block carries its number in both, so that the table can be read off.
    """
    slots = {part.start + i: slot for part in parts for i, slot in enumerate(part.slots)}
    context = max(slots) + 1
    row_of_blocks, left, strip, pitch = 12, 1.0, 0.34, 0.46
    top = 1.31  # of the pool
    page = Page(8.6, top + -(-num_blocks // row_of_blocks) * pitch + 0.1)
    unit = (page.width - left - MARGIN) / (-(-context // block_size) * block_size)
    block_width = (page.width - left - MARGIN) / row_of_blocks
    keys = page.grid(left, 0.42, unit, strip, 0.02)
    pool = page.grid(left, top, block_width, pitch, 0.06, pitch - strip)
    page.put(MARGIN, keys.middle(0.5), "context", weight="bold")
    page.put(MARGIN, pool.middle(0), "pool", weight="bold")
    used = {slot // block_size for slot in slots.values()}
    for first in range(0, context, block_size):
        middle = keys.x(min(first + block_size / 2, (first + context) / 2))
        page.note(middle, 0.9, f"block {slots[first] // block_size}", "center")
    for block in range(num_blocks):
        pool.cell(*divmod(block, row_of_blocks), style.WASH)
    inner = (block_width - 0.06) / block_size
    for number, part in enumerate(parts):
        color = style.tint(style.series_color(number), 0.7)
        end = part.start + len(part.slots)
        keys.bar(0, part.start, end, color)
        words = f"split {number}: keys {part.start} to {end - 1}"
        page.put(keys.x(part.start), 0.26, words, style.SMALL, weight="bold")
        for slot in part.slots:
            row, column = divmod(slot // block_size, row_of_blocks)
            x = pool.x(column) + slot % block_size * inner
            page.rect(x, pool.y(row), inner, strip, color)
    for block in range(num_blocks):
        color = style.INK if block in used else style.MUTED
        pool.cell(*divmod(block, row_of_blocks), text=str(block), color=color)
    for first in range(block_size, context, block_size):
        x = keys.x(first) - 0.01
        page.plot([x, x], [0.42, 0.42 + strip], color=style.PAPER, lw=1.0)
    each = (
        f"split {n}, keys {part.start} to {part.start + len(part.slots) - 1}, blocks "
        + style.some(dict.fromkeys(slot // block_size for slot in part.slots))
        for n, part in enumerate(parts)
    )
    page.say(
        f"{context:,} keys in a pool of {num_blocks} blocks of {block_size}: {'; '.join(each)}"
    )
    return page.figure
