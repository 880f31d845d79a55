"""Memory of a GPU: sectors, idle lanes, banks, the cost of each line, the levels."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Grid, Page

# ---------------------------------------------------------------------------------- access

MARGIN = 0.12
LANES, MEMORY = 0.34, 1.58  # inches: the top of the lanes, and of what they touch
MOST_SECTORS = 32  # a row of memory; a request of 32 lanes rarely touches more
SECTOR, WORD, BANKS = 32, 4, 32  # bytes, bytes that a bank gives at a time, how many


def draw_access(access) -> Figure:
    """Draw the worst request of one row of a report: `draw_access(report.line(12).accesses[0])`.

    Args:
        access: an `Access` of `yaie.emulator.checks`; anything with `memory` ("global" or
            "shared"), `size`, `kind`, `name`, `line` and `worst` (byte offset for each lane).
    """
    if not access.worst:
        raise ValueError(f"access must have a request to draw, got none for line {access.line}")
    of = f" of {access.name}" if access.name else ""
    title = f"line {access.line}: {access.memory} {access.kind}{of}"
    draw = draw_sectors if access.memory == "global" else draw_banks
    return draw(access.worst, access.size, title)


def draw_sectors(offsets: Mapping[int, int], size: int, title: str = "") -> Figure:
    """Draw the lanes of a warp above and the 32-byte sectors that they touch below, joined.

    Args:
        offsets: for each active lane the byte offset that it touches.
        size: bytes that each lane touches there.
    """
    touched = sorted({s for o in offsets.values() for s in _units(o, size, SECTOR)})
    shown = touched[:MOST_SECTORS]
    used = len({byte for o in offsets.values() for byte in range(o, o + size)})
    words = f"{style.count(len(touched), 'sector')} of 32 bytes for {used:,} bytes that are used"
    page, lanes = _draw_lanes(offsets, size, title, words, 0.3)
    width = (page.width - 2 * MARGIN) / max(len(shown), 8)
    grid = page.grid(MARGIN, MEMORY, width, 0.3, 0.03, 0)
    byte = (width - 0.03) / SECTOR  # inches
    for index, sector in enumerate(shown):
        grid.cell(0, index, style.WASH, edge=style.FAINT, radius=0.03)
        page.put(grid.x(index + 0.5), 2.0, str(sector * SECTOR), 6.0, style.MUTED, "center")
        first, last = sector * SECTOR, (sector + 1) * SECTOR
        spans = {
            lane: (max(offset, first), min(offset + size, last)) for lane, offset in offsets.items()
        }
        spans = {lane: span for lane, span in spans.items() if span[0] < span[1]}
        for begin, end in _united(spans.values()):
            left = grid.x(index) + (begin - first) * byte
            page.rect(left, MEMORY, (end - begin) * byte, 0.3, style.BLUE)
        for lane, span in spans.items():
            _join(lanes, lane, grid.x(index) + (sum(span) / 2 - first) * byte)
    left_out = len(touched) - len(shown)
    more = f"; {left_out} more sectors" if left_out else ""
    note = f"above: lanes; below: byte offset of each sector{more}"
    page.note(MARGIN, page.height - 0.3, note)
    page.say(f"{title}: the {style.count(len(offsets), 'lane')} of a request touch {words}")
    return page.figure


def draw_banks(offsets: Mapping[int, int], size: int, title: str = "") -> Figure:
    """Draw the lanes of a warp above and the 32 banks of shared memory below, words stacked.

    A bank gives one word of 4 bytes at a time: words that lie in one bank wait for each other.
    """
    words = sorted({w for o in offsets.values() for w in _units(o, size, WORD)})
    depths = Counter(word % BANKS for word in words)
    deepest = max(depths.values(), default=1)
    least = max(1, size // WORD)  # words in each bank if the lanes lay side by side
    height = min(0.16, 2.4 / deepest)
    most = f"{style.count(deepest, 'word')} in the fullest of 32 banks"
    page, lanes = _draw_lanes(offsets, size, title, most, deepest * height)
    grid = page.grid(MARGIN, MEMORY, (page.width - 2 * MARGIN) / BANKS, height, 0.03, height * 0.1)
    bottom = grid.y(deepest)
    for bank in range(BANKS):
        grid.area((0, deepest), (bank, bank + 1), style.WASH, edge=style.FAINT, line=0.6)
        color = style.VERMILION if depths[bank] > least else style.BLUE
        for depth in range(depths[bank]):
            grid.cell(depth, bank, color, radius=0.01)
        page.put(grid.x(bank + 0.5), bottom + 0.12, str(bank), 6.5, style.MUTED, "center")
    for lane, offset in offsets.items():
        _join(lanes, lane, grid.x(offset // WORD % BANKS + 0.5))
    page.note(MARGIN, bottom + 0.32, "above: lanes; below: banks")
    page.say(
        f"{title}: the {style.count(len(offsets), 'lane')} of a request ask for "
        f"{style.count(len(words), 'word')}, {most}"
    )
    return page.figure


def _united(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes in as few spans as possible, so that no seams show between neighbors."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _units(offset: int, size: int, unit: int) -> range:
    return range(offset // unit, (offset + size - 1) // unit + 1)


def _draw_lanes(
    offsets: Mapping[int, int], size: int, title: str, words: str, height: float
) -> tuple[Page, Grid]:
    """A page with the 32 lanes in a row, and room below them for a memory of this height."""
    if not offsets or not all(0 <= lane < 32 for lane in offsets):
        raise ValueError(f"offsets must have lanes from 0 to 31, got {sorted(offsets)}")
    if not 1 <= size <= 16:
        raise ValueError(f"size must be from 1 to 16 bytes, got {size}")
    page = Page(style.WIDTH, MEMORY + height + 0.62)
    page.put(MARGIN, 0.14, title, weight="bold")
    page.note(page.width - MARGIN, 0.14, words, "right")
    grid = page.grid(MARGIN, LANES, (page.width - 2 * MARGIN) / 32, 0.24, 0.03, 0)
    look = {"size": 6.5, "edge": style.FAINT, "radius": 0.03}
    for lane in range(32):
        face, ink = (style.tint(style.BLUE), style.INK)
        if lane not in offsets:
            face, ink = style.PAPER, style.MUTED
        grid.cell(0, lane, face, str(lane), color=ink, **look)
    return page, grid


def _join(lanes: Grid, lane: int, x: float) -> None:
    """A line from a lane down to where it touches the memory."""
    xs = [lanes.x(lane + 0.5) - 0.015, x]
    lanes.ax.plot(xs, [lanes.y(1), MEMORY], color=style.SKY, linewidth=0.7)


# ---------------------------------------------------------------------------------- idle lanes

ROW = 0.085  # inches: a request


def draw_lanes_active(access, title: str = "") -> Figure:
    """Draw a row for each request of a report's access, as many as were kept: idle lanes hatched.

    Args:
        access: anything with `requests`, `lanes`, and `first_lanes`, a bit per active lane.
    """
    if not access.first_lanes:
        raise ValueError(f"access must have a request to draw, got none for line {access.line}")
    rows = access.first_lanes
    page = Page(3.9, 0.62 + ROW * len(rows) + 0.3)
    share = f"{access.lanes / access.requests:.3g} of 32 lanes active"
    page.put(MARGIN, 0.16, title or f"line {access.line}", weight="bold")
    page.note(MARGIN, 0.37, f"{style.count(access.requests, 'request')}, {share}")
    grid = page.grid(MARGIN, 0.52, (page.width - 2 * MARGIN) / 32, ROW, 0.015, 0.015)
    idle = {"edge": style.FAINT, "line": 0.0, "hatch": "//////"}
    for row, lanes in enumerate(rows):
        grid.area((row, row + 1), (0, 32), style.WASH, radius=0, **idle)
        for lane in (lane for lane in range(32) if lanes >> lane & 1):
            grid.cell(row, lane, style.BLUE, radius=0.01)
    more = access.requests - len(rows)
    below = "a row is a request of a warp, a column a lane; hatched: idle"
    page.note(MARGIN, page.height - 0.14, below + (f"; {more} more requests" if more else ""))
    page.say(
        f"{title}: {style.count(access.requests, 'request')} of warps, {share} in each on average"
    )
    return page.figure


# ---------------------------------------------------------------------------------- banks

CELL = 0.13
LEFT, TALLY = 0.3, 0.5  # inches, where the array begins; of the longest bar below it


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


def draw_tile_banks(state: TileAccess) -> Figure:
    """Draw the array with a shade for each bank, the words asked for, and how many a bank gives."""
    if not state.offsets:
        raise ValueError("state must have an access of at least one lane, got none")
    if max(state.words) >= state.rows * state.pitch:
        raise ValueError(f"word {max(state.words)} is past {state.rows} rows of {state.pitch}")
    top, asked, most = 0.5, set(state.words), state.wavefronts
    below = top + state.rows * CELL
    page = Page(LEFT + max(state.pitch, BANKS) * CELL + 0.08, below + TALLY + 0.62)
    color = style.VERMILION if most > 1 else style.GREEN
    page.note(LEFT, 0.2, f"rows of {state.pitch} words")
    grid = page.grid(LEFT, top, CELL, CELL, 0.01)
    for column in range(0, state.pitch, 4):
        grid.head(column, str(column), 5.5)
    for row in range(state.rows):
        if row % 4 == 0:
            page.put(LEFT - 0.06, grid.middle(row), str(row), 5.5, style.MUTED, "right")
        for column in range(state.pitch):
            word = row * state.pitch + column
            face, edge = style.tint(style.BLUE, 0.04 + 0.5 * (word % BANKS) / (BANKS - 1)), "none"
            if column >= state.columns:
                face, edge = style.PAPER, style.FAINT
            grid.cell(row, column, color if word in asked else face, edge=edge, line=0.5)
            if word in asked:
                look = {"size": 5.5, "color": style.PAPER, "weight": "bold"}
                grid.cell(row, column, text=str(word % BANKS), **look)
    counts = Counter(word % BANKS for word in state.words)
    bars = page.grid(LEFT, below + 0.16, CELL, TALLY / max(most, 4), 0.02, 0)
    for bank in range(BANKS):
        page.rect(bars.x(bank), bars.top, CELL - 0.02, 0.02, style.FAINT)
        if counts[bank]:
            bars.area((0, counts[bank]), (bank, bank + 1), color, radius=0.01)
    words = style.count(most, "word")
    wavefronts = style.count(most, "wavefront")
    said = f"{words} in the fullest bank: {wavefronts}"
    page.put(LEFT, page.height - 0.26, said, style.SMALL, color, weight="bold")
    page.note(page.width - 0.08, page.height - 0.26, f"bank 0 to {BANKS - 1}", "right")
    page.say(
        f"An array of {state.rows} rows of {state.pitch} words in shared memory; of the "
        f"{len(state.words)} words that a warp asks for, {words} in the fullest of {BANKS} banks: "
        f"{wavefronts}"
    )
    return page.figure


# ---------------------------------------------------------------------------------- costs

SOURCE_WIDTH = 5.0
MOST_ROWS = 20


def draw_costs(report, most: float = 0.0) -> Figure:
    """Draw the table of a report: a row for each access of a line, a bar for what it costs.

    Accesses of a line that follow each other and cost the same share a row.

    Args:
        report: a `Report` of `yaie.emulator`; anything with `accesses` and `source`.
        most: sectors or wavefronts that the bars have room for, so that several can be compared.
    """
    alike = [list(group) for _, group in groupby(report.accesses, _cost)]
    accesses, times = [group[0] for group in alike[:MOST_ROWS]], [len(group) for group in alike]
    if not accesses:
        raise ValueError("report must have accesses to memory, got none")
    lines = report.source.splitlines()
    longest = max(most, *(max(a.per_request, a.ideal) for a in accesses))
    page = Page(style.WIDTH, 1.04 + 0.3 * len(accesses))
    left = MARGIN + SOURCE_WIDTH + 1.35
    grid = page.grid(left, 0.68, 2.5 / max(longest, 4), 0.3, 0, 0.12)
    page.put(MARGIN, 0.16, _verdict(report.accesses), weight="bold")
    page.note(MARGIN + 0.4, 0.45, "line")
    page.note(left, 0.45, "cost of one request of a warp")
    before, dear = None, []
    for row, access in enumerate(accesses):
        middle, what = grid.middle(row), f"{access.memory} {access.kind}"
        several = f"{times[row]} {what}s"  # the number of rows that cost the same
        if access.line != before:
            text = style.shorten(statement(lines, access.line), SOURCE_WIDTH - 0.45, style.SMALL)
            page.note(MARGIN + 0.25, middle, str(access.line), "right")
            page.put(MARGIN + 0.4, middle, text, style.SMALL)
            ends = [MARGIN, style.WIDTH - MARGIN]
            page.plot(ends, [grid.y(row) - 0.06] * 2, color=style.FAINT, linewidth=0.6)
        before = access.line
        page.note(MARGIN + SOURCE_WIDTH + 0.05, middle, several if times[row] > 1 else what)
        face, ink = style.BLUE, style.INK
        if access.units != access.ideal_units:
            face = ink = style.VERMILION
            dear.append(
                f"line {access.line}, {what}, {style.digits(access.per_request)} "
                f"{access.unit} where {style.digits(access.ideal)} would do"
            )
        grid.bar(row, 0, access.per_request, face, radius=0.02)
        ends = [grid.y(row) - 0.04, grid.y(row + 1) - 0.08]
        page.plot([grid.x(access.ideal)] * 2, ends, color=style.INK, linewidth=1.2)
        words = style.count(round(access.per_request, 2), access.unit[:-1]).replace(".0 ", " ")
        end = grid.x(max(access.per_request, access.ideal)) + 0.08
        page.put(end, middle, words, style.SMALL, ink)
    shown = sum(times[:MOST_ROWS])
    hidden = len(report.accesses) - shown
    more = f"; {hidden} more accesses" if hidden else ""
    note = f"black line: the fewest that could carry the bytes{more}"
    page.note(left, page.height - 0.16, note)
    more = f" and {hidden} more" if hidden else ""
    page.say(
        f"What a request of a warp costs, for each of {shown} accesses{more}; dearer than "
        f"they must be: {style.some(dear) or 'none'}"
    )
    return page.figure


def _cost(access) -> tuple:
    """What a row of the table shows of an access."""
    cost = access.per_request, access.ideal, access.unit, access.units != access.ideal_units
    return access.line, access.memory, access.kind, *cost


def _verdict(accesses: Sequence) -> str:
    """What the table says, in a sentence."""
    dear = sum(access.units != access.ideal_units for access in accesses)
    number = len(accesses)
    if number == 1:
        return f"the access costs {'more than' if dear else 'what'} its bytes need"
    if not dear:
        return f"all {number} accesses cost what their bytes need"
    costs = "costs more than its bytes need" if dear == 1 else "cost more than their bytes need"
    return f"{dear} of {number} accesses {costs}"


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
