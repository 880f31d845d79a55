"""Asynchrony: a ring of stages with its mbarriers, a box of a tensor, the bits of an address."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page
from yaie.course.viz.style import (
    FAINT,
    GREEN,
    INK,
    MUTED,
    SKY,
    SMALL,
    VERMILION,
    WASH,
    tint,
)

MARGIN = 0.16


@dataclass(frozen=True)
class Counts:
    """An mbarrier at a moment: arrivals and bytes that its phase lacks, and the phase's number."""

    pending: int
    bytes: int
    phase: int


@dataclass(frozen=True)
class Moment:
    """A ring of stages after a step of its producer, its consumer, or a copy.

    Attributes:
        event: what has just happened.
        stages: of each stage the tiles that its two halves hold; None is what was there before.
        full, empty: the mbarriers of each stage.
        producer, consumer: what each is doing.
        read: the tiles of the halves that the consumer has read, a pair for each stage it read.
    """

    event: str
    stages: tuple[tuple[int | None, int | None], ...]
    full: tuple[Counts, ...]
    empty: tuple[Counts, ...]
    producer: str
    consumer: str
    read: tuple[tuple[int | None, int | None], ...]


def tile_name(halves: tuple[int | None, int | None]) -> str:
    """What was read, in words: "tile 3", "nothing", "half tile 0 and half tile 2"."""
    if halves[0] == halves[1]:
        return "nothing" if halves[0] is None else f"tile {halves[0]}"
    return " and ".join(f"half {tile_name((half, half))}" for half in halves)


def draw_ring(state: Moment) -> Figure:
    """Draw the stages, the two mbarriers of each, and what was read so far."""
    row, top = 0.62, 1.0
    bottom = top + row * len(state.stages)
    page = Page(7.6, bottom + 0.5)
    page.put(MARGIN, 0.2, state.event, weight="bold")
    page.note(MARGIN, 0.46, f"producer: {state.producer}")
    page.note(3.9, 0.46, f"consumer: {state.consumer}")
    for x, words in ((MARGIN, "stage"), (2.1, "full: its tile has come"), (4.95, "empty: read")):
        page.note(x, 0.76, words)
    for number, halves in enumerate(state.stages):
        y = top + number * row
        page.put(MARGIN, y + 0.18, str(number), weight="bold")
        for half, tile in enumerate(halves):
            face = WASH if tile is None else tint(style.series_color(tile), 0.6)
            words = "" if tile is None else f"tile {tile}"
            page.cell(MARGIN + 0.25 + half * 0.75, y, 0.73, 0.36, words, face, FAINT, 0.6, 0.03)
        for x, counts in ((2.1, state.full[number]), (4.95, state.empty[number])):
            color = VERMILION if counts.bytes < 0 else INK
            face = tint(SKY, 0.12 + 0.2 * (counts.phase % 2))
            page.box(x, y, 2.45, 0.36, face, FAINT, 0.6, 0.03)
            arrivals = style.count(counts.pending, "arrival")
            lacks = f"lacks {arrivals}, {counts.bytes:,} bytes"
            page.put(x + 0.08, y + 0.1, lacks, SMALL, color)
            phase = f"phase {counts.phase}, parity {counts.phase % 2}"
            page.put(x + 0.08, y + 0.27, phase, SMALL, MUTED)
    read = ", ".join(map(tile_name, state.read)) or "nothing yet"
    right = all(halves == (n, n) for n, halves in enumerate(state.read))
    page.put(MARGIN, bottom + 0.2, f"read: {read}", SMALL, GREEN if right else VERMILION)
    held = style.some(map(tile_name, state.stages))
    page.say(
        f"{state.event}. The stages hold {held}; the producer {state.producer}, the consumer "
        f"{state.consumer}; read: {read}"
    )
    return page.figure


def draw_box(sizes: tuple[int, int], box: tuple[int, int], corner: tuple[int, int]) -> Figure:
    """Draw a box over a tensor, hatched where it lies outside and zeros arrive.

    Args:
        sizes: columns and rows of the tensor.
        box: columns and rows of the box.
        corner: (x, y) of its first element; it may lie outside.
    """
    low = [min(0, corner[i]) for i in (0, 1)]
    high = [max(sizes[i], corner[i] + box[i]) for i in (0, 1)]
    unit = min(2.6 / (high[0] - low[0]), 2.0 / (high[1] - low[1]))
    left, top = MARGIN - low[0] * unit, 0.5 - low[1] * unit
    page = Page(2 * MARGIN + 2.6, 0.9 + 2.0)
    grid = page.grid(left, top, unit, unit)
    grid.area((0, sizes[1]), (0, sizes[0]), tint(SKY, 0.25), edge=FAINT)
    rows, columns = ((corner[i], corner[i] + box[i]) for i in (1, 0))
    grid.area(rows, columns, tint(VERMILION, 0.25), edge=VERMILION, hatch="////")
    inside = [(max(0, corner[i]), min(sizes[i], corner[i] + box[i])) for i in (0, 1)]
    area = max(0, inside[0][1] - inside[0][0]) * max(0, inside[1][1] - inside[1][0])
    if area:
        grid.area(inside[1], inside[0], style.BLUE)
    zeros = box[0] * box[1] - area
    words = f"x = {corner[0]}, y = {corner[1]}: {area:,} elements, {zeros:,} zeros"
    page.put(MARGIN, 0.2, words, SMALL, weight="bold")
    page.note(MARGIN, page.height - 0.2, f"tensor: {sizes[1]} rows of {sizes[0]}")
    page.say(
        f"A box of {box[1]} rows of {box[0]} over a tensor of {sizes[1]} rows of {sizes[0]}, at "
        f"x = {corner[0]}, y = {corner[1]}: {area:,} elements inside, {zeros:,} zeros"
    )
    return page.figure


def draw_address_bits(
    before: int, after: int, chosen: Sequence[int], changed: Sequence[int]
) -> Figure:
    """Draw an address as bits, above the one that a swizzle makes of it.

    Args:
        before, after: the addresses.
        chosen, changed: numbers of the bits that are xored, and of those into which.
    """
    bits, width, left = 12, 0.42, 1.5
    page = Page(left + bits * width + MARGIN, 2.0)
    upper = page.grid(left, 0.42, width, 0.32, 0.03)
    lower = page.grid(left, 1.22, width, 0.32, 0.03)
    for column in range(bits):
        bit = bits - 1 - column
        upper.head(column, str(bit))
        face = (
            tint(style.ORANGE, 0.6) if bit in chosen else tint(SKY, 0.5) if bit in changed else WASH
        )
        upper.cell(0, column, face, str(before >> bit & 1), edge=FAINT, radius=0.03)
        differs = (before ^ after) >> bit & 1
        face = VERMILION if differs else tint(SKY, 0.5) if bit in changed else WASH
        look = {"edge": FAINT, "radius": 0.03, "color": style.ink_on(face)}
        lower.cell(0, column, face, str(after >> bit & 1), weight="bold", **look)
    for source, target in zip(chosen, changed, strict=True):
        start = upper.x(bits - source - 0.5), upper.y(1)
        page.arrow(start, (lower.x(bits - target - 0.5), lower.y(0) - 0.04), style.ORANGE)
    for grid, words, number in ((upper, "byte of the box", before), (lower, "in memory", after)):
        page.put(MARGIN, grid.middle(0) - 0.06, words, SMALL)
        page.note(MARGIN, grid.middle(0) + 0.12, f"{number:,}")
    moved = ", ".join(f"{s} into {t}" for s, t in zip(chosen, changed, strict=True))
    page.note(MARGIN, 1.8, f"xored: bit {moved}; red below: a bit that differs")
    page.say(f"Byte {before} of a box lies at byte {after}: xored are bit {moved}")
    return page.figure
