"""Memory of a GPU: sectors, banks, the cost of each line, the levels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

# ---------------------------------------------------------------------------------- access

MARGIN = 0.12
TOP = 0.34
LANE_HEIGHT = 0.24
FALL = 1.0  # from the lanes to the memory
UNIT_HEIGHT = 0.3
MOST_SECTORS = 32  # a row of memory; a request of 32 lanes rarely touches more
SECTOR, BANK, BANKS = 32, 4, 32  # bytes, bytes, how many


def draw_access(access, at: Place | None = None, width: float = style.WIDTH) -> Figure:
    """Draw the worst request of one row of a report: `draw_access(report.line(12).accesses[0])`.

    Args:
        access: an `Access` of `yaie.emulator.checks`; anything with `memory` ("global" or
            "shared"), `size`, `kind`, `name`, `line` and `worst` (byte offset for each lane).
    """
    if not access.worst:
        raise ValueError(f"access must have a request to draw, got none for line {access.line}")
    if access.memory == "global":
        return draw_sectors(access.worst, access.size, _title(access), width, at)
    return draw_banks(access.worst, access.size, _title(access), width, at)


def _title(access) -> str:
    of = f" of {access.name}" if access.name else ""
    return f"line {access.line}: {access.memory} {access.kind}{of}"


def draw_sectors(
    offsets: Mapping[int, int],
    size: int,
    title: str = "",
    width: float = style.WIDTH,
    at: Place | None = None,
) -> Figure:
    """Draw the lanes of a warp above and the 32-byte sectors that they touch below, joined.

    Args:
        offsets: for each active lane the byte offset that it touches.
        size: bytes that each lane touches there.
    """
    _check(offsets, size)
    touched = sorted({s for o in offsets.values() for s in _units(o, size, SECTOR)})
    page = Page(width, TOP + LANE_HEIGHT + FALL + UNIT_HEIGHT + 0.62, at)
    used = len({byte for o in offsets.values() for byte in range(o, o + size)})
    count = style.count(len(touched), "sector")
    words = f"{count} of 32 bytes for {used:,} bytes that are used"
    _write_head(page, title, words)
    lane_x, cell = _draw_lanes(page, offsets)
    shown = touched[:MOST_SECTORS]
    step = (width - 2 * MARGIN) / max(len(shown), 8)
    top = TOP + LANE_HEIGHT + FALL
    for index, sector in enumerate(shown):
        x = MARGIN + index * step
        page.box(x, top, step - 0.03, UNIT_HEIGHT, style.WASH, style.FAINT, 0.8, 0.03)
        for lane, offset in offsets.items():
            begin, end = max(offset, sector * SECTOR), min(offset + size, (sector + 1) * SECTOR)
            if begin >= end:
                continue
            scale = (step - 0.03) / SECTOR
            left = x + (begin - sector * SECTOR) * scale
            page.box(left, top, (end - begin) * scale, UNIT_HEIGHT, style.BLUE, radius=0.0)
            _join(page, lane_x(lane) + cell / 2, left + (end - begin) * scale / 2, top)
        page.put(
            x + step / 2, top + UNIT_HEIGHT + 0.12, str(sector * SECTOR), 6.0, style.MUTED, "center"
        )
    left_out = len(touched) - len(shown)
    note = "byte offset of each sector" + (f"; {left_out} more sectors" if left_out else "")
    page.note(MARGIN, top + UNIT_HEIGHT + 0.32, note)
    lanes = style.count(len(offsets), "lane")
    page.say(f"{title}: the {lanes} of a request touch {words}")
    return page.figure


def draw_banks(
    offsets: Mapping[int, int],
    size: int,
    title: str = "",
    width: float = style.WIDTH,
    at: Place | None = None,
) -> Figure:
    """Draw the lanes of a warp above and the 32 banks of shared memory below, words stacked.

    A bank gives one word of 4 bytes at a time: words that lie in one bank wait for each other.
    """
    _check(offsets, size)
    words: dict[int, list[int]] = {bank: [] for bank in range(BANKS)}
    for word in sorted({w for o in offsets.values() for w in _units(o, size, BANK)}):
        words[word % BANKS].append(word)
    deepest = max(len(column) for column in words.values())
    least = max(1, size // BANK)  # words in each bank if the lanes lay side by side
    height = min(0.16, 2.4 / deepest)
    page = Page(width, TOP + LANE_HEIGHT + FALL + deepest * height + 0.62, at)
    most = style.count(deepest, "word")
    _write_head(page, title, f"{most} in the fullest of 32 banks")
    lane_x, cell = _draw_lanes(page, offsets)
    top = TOP + LANE_HEIGHT + FALL
    step = (width - 2 * MARGIN) / BANKS
    for bank, column in words.items():
        x = MARGIN + bank * step
        page.box(x, top, step - 0.03, deepest * height, style.WASH, style.FAINT, 0.6, 0.02)
        color = style.VERMILION if len(column) > least else style.BLUE
        for depth in range(len(column)):
            page.box(x, top + depth * height, step - 0.03, height * 0.9, color, radius=0.01)
        page.put(x + step / 2, top + deepest * height + 0.12, str(bank), 6.5, style.MUTED, "center")
    for lane, offset in offsets.items():
        bank = offset // BANK % BANKS
        _join(page, lane_x(lane) + cell / 2, MARGIN + bank * step + step / 2, top)
    page.note(MARGIN, top + deepest * height + 0.32, "bank")
    lanes = style.count(len(offsets), "lane")
    total = style.count(sum(map(len, words.values())), "word")
    page.say(
        f"{title}: the {lanes} of a request ask for {total}, {most} in the fullest of 32 banks"
    )
    return page.figure


def _check(offsets: Mapping[int, int], size: int) -> None:
    if not offsets or not all(0 <= lane < 32 for lane in offsets):
        raise ValueError(f"offsets must have lanes from 0 to 31, got {sorted(offsets)}")
    if not 1 <= size <= 16:
        raise ValueError(f"size must be from 1 to 16 bytes, got {size}")


def _units(offset: int, size: int, unit: int) -> range:
    return range(offset // unit, (offset + size - 1) // unit + 1)


def _write_head(page: Page, title: str, words: str) -> None:
    page.put(MARGIN, 0.14, title, weight="bold")
    page.note(page.width - MARGIN, 0.14, words, "right")


def _draw_lanes(page: Page, offsets: Mapping[int, int]):
    """The 32 lanes in a row; returns where each begins, and how wide it is."""
    cell = (page.width - 2 * MARGIN) / 32

    def left(lane: int) -> float:
        return MARGIN + lane * cell

    for lane in range(32):
        face = style.tint(style.BLUE) if lane in offsets else style.PAPER
        color = style.INK if lane in offsets else style.FAINT
        page.cell(
            left(lane),
            TOP,
            cell - 0.03,
            LANE_HEIGHT,
            str(lane),
            face,
            style.FAINT,
            0.8,
            0.03,
            size=6.5,
            color=color,
        )
    return left, cell - 0.03


def _join(page: Page, above: float, below: float, top: float) -> None:
    page.plot([above, below], [TOP + LANE_HEIGHT, top], color=style.SKY, linewidth=0.7)


# ---------------------------------------------------------------------------------- banks

WORD = 4  # bytes that a bank gives at a time
CELL = 0.13
LEFT, BANKS_TOP, RIGHT = 0.3, 0.5, 0.08
TALLY = 0.5  # the height of the longest bar below the tile


@dataclass(frozen=True)
class TileAccess:
    """What one warp asks of a two-dimensional array of 4-byte words in shared memory.

    Attributes:
        offsets: for each lane the byte that it touches, such as `worst` of a report's access.
        pitch: words from one row of the array to the next.
        rows: of the array. `columns` of each row are in use, the rest is padding.
    """

    offsets: Mapping[int, int]
    pitch: int
    rows: int = 32
    columns: int = 32

    @property
    def words(self) -> list[int]:
        """The words that are asked for, each once."""
        return sorted({offset // WORD for offset in self.offsets.values()})

    @property
    def wavefronts(self) -> int:
        """The most words that lie in one bank: they come one after the other."""
        return max(Counter(word % BANKS for word in self.words).values())


def draw_tile_banks(state: TileAccess, at: Place | None = None) -> Figure:
    """Draw the array with a shade for each bank, the words asked for, and how many a bank gives."""
    if not state.offsets:
        raise ValueError("state must have an access of at least one lane, got none")
    if max(state.words) >= state.rows * state.pitch:
        raise ValueError(f"word {max(state.words)} is past {state.rows} rows of {state.pitch}")
    width = LEFT + max(state.pitch, BANKS) * CELL + RIGHT
    below = BANKS_TOP + state.rows * CELL
    page = Page(width, below + TALLY + 0.62, at)
    _draw_words(page, state)
    _draw_tally(page, state, below + 0.16)
    words = style.count(state.wavefronts, "word")
    page.say(
        f"An array of {state.rows} rows of {state.pitch} words in shared memory; of the "
        f"{len(state.words)} words that a warp asks for, {words} in the fullest of {BANKS} banks: "
        f"{style.count(state.wavefronts, 'wavefront')}"
    )
    return page.figure


def _draw_words(page: Page, state: TileAccess) -> None:
    asked, color = set(state.words), _color(state)
    page.note(LEFT, 0.2, f"rows of {state.pitch} words")
    for column in range(0, state.pitch, 4):
        page.put(
            LEFT + (column + 0.5) * CELL, BANKS_TOP - 0.1, str(column), 5.5, style.MUTED, "center"
        )
    for row in range(state.rows):
        y = BANKS_TOP + row * CELL
        if row % 4 == 0:
            page.put(LEFT - 0.06, y + CELL / 2, str(row), 5.5, style.MUTED, "right")
        for column in range(state.pitch):
            word = row * state.pitch + column
            bank = word % BANKS
            used = column < state.columns
            face = style.tint(style.BLUE, 0.04 + 0.5 * bank / (BANKS - 1)) if used else style.PAPER
            edge = "none" if used else style.FAINT
            x = LEFT + column * CELL
            if word in asked:
                face = color
            page.box(x, y, CELL - 0.01, CELL - 0.01, face, edge, 0.5, 0.0)
            if word in asked:
                spot = x + CELL / 2 - 0.005, y + CELL / 2
                page.put(*spot, str(bank), 4.8, style.PAPER, "center", weight="bold")


def _draw_tally(page: Page, state: TileAccess, top: float) -> None:
    """A bar for each bank: the words that it has to give."""
    counts = Counter(word % BANKS for word in state.words)
    most = state.wavefronts
    for bank in range(BANKS):
        x = LEFT + bank * CELL
        height = TALLY * counts[bank] / max(most, 4)
        page.box(x, top, CELL - 0.02, 0.02, style.FAINT, radius=0.0)
        if counts[bank]:
            page.box(x, top, CELL - 0.02, max(height, 0.04), _color(state), radius=0.01)
    words = f"{style.count(most, 'word')} in the fullest bank: {style.count(most, 'wavefront')}"
    page.put(LEFT, top + TALLY + 0.2, words, style.SMALL, _color(state), weight="bold")
    label = f"bank 0 to {BANKS - 1}"
    page.note(page.width - RIGHT, top + TALLY + 0.2, label, "right")


def _color(state: TileAccess) -> str:
    return style.VERMILION if state.wavefronts > 1 else style.GREEN


# ---------------------------------------------------------------------------------- costs

ROW = 0.3
HEAD = 0.34
SOURCE_WIDTH = 5.0
BAR_WIDTH = 2.5
MOST_ROWS = 20


def draw_costs(report, at: Place | None = None) -> Figure:
    """Draw the table of a report: a row for each access of a line, a bar for what it costs.

    Args:
        report: a `Report` of `yaie.emulator`; anything with `accesses` and `source`.
    """
    accesses = report.accesses[:MOST_ROWS]
    if not accesses:
        raise ValueError("report must have accesses to memory, got none")
    lines = report.source.splitlines()
    longest = max(max(a.per_request, a.ideal) for a in accesses)
    scale = BAR_WIDTH / max(longest, 4)
    page = Page(style.WIDTH, HEAD + ROW * len(accesses) + 0.42, at)
    _head(page)
    left = MARGIN + SOURCE_WIDTH + 1.35
    before = None
    for index, access in enumerate(accesses):
        y = HEAD + ROW * index
        middle = y + ROW / 2
        if access.line != before:
            text = style.shorten(statement(lines, access.line), SOURCE_WIDTH - 0.45, style.SMALL)
            page.note(MARGIN + 0.25, middle, str(access.line), "right")
            page.put(MARGIN + 0.4, middle, text, style.SMALL)
            page.plot([MARGIN, style.WIDTH - MARGIN], [y, y], color=style.FAINT, linewidth=0.6)
        before = access.line
        what = f"{access.memory} {access.kind}"
        page.note(MARGIN + SOURCE_WIDTH + 0.05, middle, what)
        good = access.units == access.ideal_units
        color = style.BLUE if good else style.VERMILION
        width = max(access.per_request * scale, 0.02)
        page.box(left, y + 0.06, width, ROW - 0.12, color, radius=0.02)
        ideal = left + access.ideal * scale
        page.plot([ideal, ideal], [y + 0.02, y + ROW - 0.02], color=style.INK, linewidth=1.2)
        words = style.count(round(access.per_request, 2), access.unit[:-1]).replace(".0 ", " ")
        spot = left + max(width, access.ideal * scale) + 0.08, middle
        page.put(*spot, words, style.SMALL, style.INK if good else style.VERMILION)
    hidden = len(report.accesses) - len(accesses)
    note = "black: the fewest that could carry the bytes" + (f"; {hidden} more" if hidden else "")
    page.note(left, page.height - 0.16, note)
    dear = (
        f"line {access.line}, {access.memory} {access.kind}, {style.digits(access.per_request)} "
        f"{access.unit} where {style.digits(access.ideal)} would do"
        for access in accesses
        if access.units != access.ideal_units
    )
    more = f" and {hidden} more" if hidden else ""
    page.say(
        f"What a request of a warp costs, for each of {len(accesses)} accesses{more}; dearer than "
        f"they must be: {style.some(dear) or 'none'}"
    )
    return page.figure


def statement(lines: Sequence[str], number: int) -> str:
    """The code from a line on, counted from 1, to where its statement ends.

    An ellipsis stands before it if the statement began earlier.
    """
    code = [line.partition("//")[0].strip() for line in lines]
    before = next(filter(None, reversed(code[: number - 1])), "")
    own = list(takewhile(goes_on, code[number - 1 :]))
    text = " ".join([*own, *code[number - 1 + len(own) :][:1]])
    return f"… {text}" if goes_on(before) else text


def goes_on(line: str) -> bool:
    """Whether a line of C++ without its comment ends within a statement."""
    head = re.match(r"(for|if|while|else)\b", line) and line.count("(") == line.count(")")
    return not (head or line.endswith((";", "{", "}", ":")) or line.startswith("#") or not line)


def _head(page: Page) -> None:
    page.note(MARGIN + 0.4, HEAD / 2, "line")
    words = "a request of a warp costs"
    page.note(MARGIN + SOURCE_WIDTH + 1.35, HEAD / 2, words)
