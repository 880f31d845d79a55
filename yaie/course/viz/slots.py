"""From the tokens of a request, in their order, to the slots of the pool where they lie."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.12
HEIGHT = 0.34
GAP = 0.12  # between blocks
TOP = 0.3  # of the row of tokens
FALL = 0.85  # from the row of tokens to the pool


def draw_slots(
    tokens: Sequence[str],
    slots: Sequence[int],
    num_blocks: int,
    block_size: int,
    width: float = style.WIDTH,
    at: style.Place | None = None,
) -> Figure:
    """Draw a request's tokens above, the pool as one row of slots below, and what joins them.

    Args:
        tokens: the text of each token.
        slots: where each token's key and value lie.
    """
    if len(tokens) != len(slots):
        raise ValueError(f"slots must be {len(tokens)}, one for each token, got {len(slots)}")
    num_slots = num_blocks * block_size
    outside = [slot for slot in slots if not 0 <= slot < num_slots]
    if outside:
        raise ValueError(f"slots must be from 0 to {num_slots - 1}, got {outside[0]}")
    cell = (width - 2 * MARGIN - GAP * (num_blocks - 1)) / num_slots
    pool_top = TOP + HEIGHT + FALL
    page = style.Page(width, pool_top + HEIGHT + 0.42, at)
    ax = page.ax
    words = f"{style.count(len(tokens), 'token')}, in their order"
    style.put(ax, MARGIN, 0.14, words, style.SMALL, style.MUTED)
    # The row of tokens is cut where blocks end, as the pool is, and stands above its middle.
    num_pieces = -(-len(tokens) // block_size)
    row = len(tokens) * cell + GAP * (num_pieces - 1)
    left = MARGIN + max(0.0, (width - 2 * MARGIN - row) / 2)

    def pool_x(slot: int) -> float:
        return MARGIN + slot * cell + slot // block_size * GAP

    for slot in range(num_slots):
        style.box(ax, pool_x(slot), pool_top, cell - 0.02, HEIGHT, style.PAPER, style.FAINT, 0.8,
                  0.03)  # fmt: skip
        style.put(ax, pool_x(slot) + cell / 2 - 0.01, pool_top + HEIGHT + 0.1, str(slot), 6.5,
                  style.MUTED, "center")  # fmt: skip
    for block in range(num_blocks):
        x = pool_x(block * block_size) + block_size * cell / 2
        style.put(ax, x, pool_top + HEIGHT + 0.28, f"block {block}", style.SMALL, style.INK,
                  "center")  # fmt: skip
    for i, (text, slot) in enumerate(zip(tokens, slots, strict=True)):
        color = style.series_color(i // block_size)
        x, label = left + i * cell + i // block_size * GAP, style.shorten(text, cell - 0.06, 7)
        for x0, y0 in ((x, TOP), (pool_x(slot), pool_top)):
            style.box(ax, x0, y0, cell - 0.02, HEIGHT, style.tint(color, 0.45), radius=0.03)
            style.put(ax, x0 + cell / 2 - 0.01, y0 + HEIGHT / 2, label, 7, ha="center")
        middle = cell / 2 - 0.01
        ax.plot([x + middle, pool_x(slot) + middle], [TOP + HEIGHT + 0.02, pool_top - 0.02],
                color=style.tint(color, 0.7), lw=1.1)  # fmt: skip
    pairs = (f"{text.strip()} {slot}" for text, slot in zip(tokens, slots, strict=True))
    page.say(f"Tokens and their slots, in blocks of {block_size}: {style.some(pairs, 12)}")
    return page.figure
