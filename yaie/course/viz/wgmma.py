"""Hopper's matrix product: descriptors, what a wgmma reads, registers, and a pipeline of roles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page
from yaie.course.viz.style import BLUE, FAINT, GREEN, INK, ORANGE, PAPER, SKY, SMALL, VERMILION

MARGIN = 0.16
FIELDS = (  # first bit, width, name, bytes per unit
    (0, 14, "address", 16),
    (16, 14, "leading bytes", 16),
    (32, 14, "stride bytes", 16),
    (62, 2, "mode", 0),
)
MODES = ("no swizzle", "128 bytes", "64 bytes", "32 bytes")


def draw_descriptor(descriptor: int) -> Figure:
    """Draw the 64 bits of a matrix descriptor, from bit 63 down to bit 0, and what they mean."""
    page = Page(style.WIDTH, 1.0)
    grid = page.grid(MARGIN, 0.36, (page.width - 2 * MARGIN) / 64, 0.26, 0.012)
    owner = {bit: i for i, (low, n, *_) in enumerate(FIELDS) for bit in range(low, low + n)}
    for bit in range(64):
        on = descriptor >> bit & 1
        face = style.tint(FAINT, 0.4)
        if bit in owner:
            face = style.tint(style.series_color(owner[bit]), 0.85 if on else 0.2)
        ink = style.ink_on(face) if on and bit in owner else style.MUTED
        grid.cell(0, 63 - bit, face, str(on), size=6.5, color=ink)
    said = []
    for low, width, name, unit in FIELDS:
        value = descriptor >> low & (1 << width) - 1
        words = f"{name}: {value * unit:,}" if unit else f"{name} {value}: {MODES[value]}"
        high = low + width - 1
        ha, x = ("left", grid.x(63 - high)) if width < 14 else ("center", 0.0)
        x = x or (grid.x(63 - high) + grid.x(64 - low)) / 2
        page.put(x, 0.8, words, SMALL, ha=ha, weight="bold")
        page.note(grid.x(63 - high), 0.24, str(high))
        page.note(grid.x(64 - low) - 0.02, 0.24, str(low), "right")
        said.append(words)
    page.say(f"The 64 bits of a descriptor; {', '.join(said)}")
    return page.figure


# ---------------------------------------------------------------------------------- what is read


@dataclass(frozen=True)
class Reads:
    """What one wgmma reads of the tiles of a and b.

    Attributes:
        step: which 16 of 64 values of k.
        a, b: its descriptors.
        address_of_a, address_of_b: of the tiles.
    """

    step: int
    a: int
    b: int
    address_of_a: int
    address_of_b: int


def draw_reads(state: Reads) -> Figure:
    """Draw lines of both tiles as they lie in shared memory, with the chunks that a step reads.

    A row of the picture is a line of 128 bytes, a box a chunk of 16, labeled with the chunk's
    number in the matrix before it was permuted.
    """
    page = Page(style.WIDTH, 3.95)
    offsets = [
        ((d & 0x3FFF) << 4) - base
        for d, base in ((state.a, state.address_of_a), (state.b, state.address_of_b))
    ]
    first_chunk = offsets[0] // 16  # of a: which chunks of every line
    first_line = offsets[1] // 128  # of b: which lines
    columns = (
        ("a: rows 0 to 15, K-major", MARGIN + 0.55, range(16), ORANGE),
        ("b, columns 0 to 63: MN-major", MARGIN + 3.75, range(first_line, first_line + 16), GREEN),
        ("b, columns 64 to 127", MARGIN + 6.95, range(first_line, first_line + 16), GREEN),
    )
    for i, (title, x, lines, color) in enumerate(columns):
        page.put(x, 0.2, title, SMALL, weight="bold")
        grid = page.grid(x, 0.36, 0.3, 0.19, 0.015)
        for row, line in enumerate(lines):
            what = "row" if i == 0 else "k"
            grid.name(row, f"{what} {line}" if row % 4 == 0 else "", 6.5, color=style.MUTED)
            for place in range(8):
                chunk = place ^ line % 8
                read = i > 0 or first_chunk <= chunk < first_chunk + 2
                face = style.tint(color, 0.75) if read else style.tint(FAINT, 0.35)
                ink = INK if read else style.MUTED
                grid.cell(row, place, face, str(chunk), size=6.5, color=ink, radius=0.015)
        words = f"begins at byte {offsets[0] if i == 0 else offsets[1]:,} of the tile"
        if i == 2:
            words = f"{(state.b >> 16 & 0x3FFF) << 4:,} bytes further on (leading bytes)"
        page.note(x, grid.y(16) + 0.14, words)
    ks = f"{16 * state.step} to {16 * state.step + 15}"
    page.put(MARGIN, page.height - 0.14, f"step {state.step}: k = {ks}", SMALL, weight="bold")
    page.say(
        f"Step {state.step}, k = {ks}: of a, chunks {first_chunk} and {first_chunk + 1} of every "
        f"line, each at another place; of b, lines {first_line} to {first_line + 15} of both parts "
        "of 64 columns"
    )
    return page.figure


# ---------------------------------------------------------------------------------- registers


def draw_registers(budgets: Sequence[Any]) -> Figure:
    """Draw how warp groups share the 65,536 registers of an SM, at several moments.

    Args:
        budgets: with a title and groups of (name, registers per thread, of which sums).
    """
    page = Page(style.WIDTH, 0.45 + 0.78 * len(budgets) + 0.2)
    total, left = 65_536, 1.5
    grid = page.grid(left, 0.4, (page.width - left - MARGIN) / total, 0.78, 0.02, 0.3)
    page.note(left, 0.2, "registers of an SM: 65,536 in all")
    for row, budget in enumerate(budgets):
        grid.bar(row, 0, total, style.WASH)
        grid.name(row, budget.title, SMALL, weight="bold")
        begin, said = 0, []
        for number, (name, each, sums) in enumerate(budget.groups):
            color = (ORANGE, BLUE, SKY)[number % 3]
            end = begin + each * 128
            grid.bar(row, begin, end, style.tint(color, 0.35))
            if sums:
                grid.bar(row, begin, begin + sums * 128, style.tint(color, 0.7), f"{sums} sums")
            words = f"{name}: {each} per thread" if each > 60 else f"{each}"
            page.note(grid.x(begin), grid.y(row + 1) - 0.2, words)
            said.append(f"{name} {each}")
            begin = end
        page.say(f"{budget.title}, registers per thread: {', '.join(said)}; {begin:,} in all")
    return page.figure


# ---------------------------------------------------------------------------------- roles

FACES = {
    "copy": style.tint(ORANGE, 0.75),
    "wait": style.tint(VERMILION, 0.45),
    "wait for products": style.tint(BLUE, 0.35),
    "works": style.tint(FAINT, 0.6),
    "store": GREEN,
}
IDLE = style.tint(INK, 0.3)  # a unit without work; a thread that waits has a reason
WORDS = {
    "copy": "a copy",
    "product": "a product",
    "wait": "waits for an mbarrier",
    "wait for products": "waits for products",
    "works": "other instructions",
    "store": "stores sums",
}


def draw_roles(state: Any, until: float | None = None) -> Figure:
    """Draw a kernel's threads, stages of shared memory and tensor cores along time.

    Args:
        state: with `lanes`, their `spans`, the `unit` of time, `end` and `busy`.
        until: how much time the page has room for.
    """
    end = until or state.end
    row, left = 0.23, 1.15
    page = Page(style.WIDTH, 0.62 + row * len(state.lanes) + 0.3)
    grid = page.grid(left, 0.36, (page.width - left - MARGIN) / end, row, 0.0, 0.035)
    rows = {lane: number for number, lane in enumerate(state.lanes)}
    for lane, number in rows.items():
        grid.name(number, lane)
        grid.bar(number, 0, end, style.WASH)
    if "tensor cores" in rows:
        grid.bar(rows["tensor cores"], 0, min(end, state.end), IDLE)
    for span in state.spans:
        face = BLUE if span.kind == "product" else FACES[span.kind]
        if span.begin < end and span.end > span.begin:
            ink = PAPER if span.kind == "product" else INK
            ends = span.begin, min(span.end, end)
            look = {"size": 6.5, "color": ink, "edge": PAPER, "line": 0.4}
            grid.bar(rows[span.lane], *ends, face, span.name, **look)
    busy = f"tensor cores busy {state.busy:.0%} of the time"
    words = busy if "tensor cores" in rows else f"{state.end:,.0f} {state.unit}"
    page.put(left, 0.18, words, SMALL, weight="bold")
    kinds = [kind for kind in WORDS if any(span.kind == kind for span in state.spans)]
    faces = {WORDS[kind]: BLUE if kind == "product" else FACES[kind] for kind in kinds}
    if "tensor cores" in rows:
        faces["tensor cores idle"] = IDLE
    page.legend(left, page.height - 0.2, faces)
    page.note(page.width - MARGIN, 0.18, "time →", "right")
    page.say(f"{', '.join(state.lanes)} along {state.end:g} units of time: {words}")
    return page.figure
