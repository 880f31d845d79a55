"""One request of a warp: which bytes its lanes touch, and what the memory system moves for them."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.12
TOP = 0.34
LANE_HEIGHT = 0.24
FALL = 1.0  # from the lanes to the memory
UNIT_HEIGHT = 0.3
MOST_SECTORS = 32  # a row of memory; a request of 32 lanes rarely touches more
SECTOR, BANK, BANKS = 32, 4, 32  # bytes, bytes, how many


def draw_access(access, at: style.Place | None = None, width: float = style.WIDTH) -> Figure:
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
    at: style.Place | None = None,
) -> Figure:
    """Draw the lanes of a warp above and the 32-byte sectors that they touch below, joined.

    Args:
        offsets: for each active lane the byte offset that it touches.
        size: bytes that each lane touches there.
    """
    _check(offsets, size)
    touched = sorted({s for o in offsets.values() for s in _units(o, size, SECTOR)})
    page = style.Page(width, TOP + LANE_HEIGHT + FALL + UNIT_HEIGHT + 0.62, at)
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
        style.box(page.ax, x, top, step - 0.03, UNIT_HEIGHT, style.WASH, style.FAINT, 0.8, 0.03)
        for lane, offset in offsets.items():
            begin, end = max(offset, sector * SECTOR), min(offset + size, (sector + 1) * SECTOR)
            if begin >= end:
                continue
            scale = (step - 0.03) / SECTOR
            left = x + (begin - sector * SECTOR) * scale
            style.box(page.ax, left, top, (end - begin) * scale, UNIT_HEIGHT, style.BLUE,
                      radius=0.0)  # fmt: skip
            _join(page, lane_x(lane) + cell / 2, left + (end - begin) * scale / 2, top)
        style.put(page.ax, x + step / 2, top + UNIT_HEIGHT + 0.12, str(sector * SECTOR), 6.0,
                  style.MUTED, "center")  # fmt: skip
    left_out = len(touched) - len(shown)
    note = "byte offset of each sector" + (f"; {left_out} more sectors" if left_out else "")
    style.put(page.ax, MARGIN, top + UNIT_HEIGHT + 0.32, note, style.SMALL, style.MUTED)
    lanes = style.count(len(offsets), "lane")
    page.say(f"{title}: the {lanes} of a request touch {words}")
    return page.figure


def draw_banks(
    offsets: Mapping[int, int],
    size: int,
    title: str = "",
    width: float = style.WIDTH,
    at: style.Place | None = None,
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
    page = style.Page(width, TOP + LANE_HEIGHT + FALL + deepest * height + 0.62, at)
    most = style.count(deepest, "word")
    _write_head(page, title, f"{most} in the fullest of 32 banks")
    lane_x, cell = _draw_lanes(page, offsets)
    top = TOP + LANE_HEIGHT + FALL
    step = (width - 2 * MARGIN) / BANKS
    for bank, column in words.items():
        x = MARGIN + bank * step
        style.box(
            page.ax, x, top, step - 0.03, deepest * height, style.WASH, style.FAINT, 0.6, 0.02
        )
        color = style.VERMILION if len(column) > least else style.BLUE
        for depth in range(len(column)):
            style.box(page.ax, x, top + depth * height, step - 0.03, height * 0.9, color,
                      radius=0.01)  # fmt: skip
        style.put(page.ax, x + step / 2, top + deepest * height + 0.12, str(bank), 6.5,
                  style.MUTED, "center")  # fmt: skip
    for lane, offset in offsets.items():
        bank = offset // BANK % BANKS
        _join(page, lane_x(lane) + cell / 2, MARGIN + bank * step + step / 2, top)
    style.put(page.ax, MARGIN, top + deepest * height + 0.32, "bank", style.SMALL, style.MUTED)
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


def _write_head(page: style.Page, title: str, words: str) -> None:
    style.put(page.ax, MARGIN, 0.14, title, style.BODY, weight="bold")
    style.put(page.ax, page.width - MARGIN, 0.14, words, style.SMALL, style.MUTED, "right")


def _draw_lanes(page: style.Page, offsets: Mapping[int, int]):
    """The 32 lanes in a row; returns where each begins, and how wide it is."""
    cell = (page.width - 2 * MARGIN) / 32

    def left(lane: int) -> float:
        return MARGIN + lane * cell

    for lane in range(32):
        face = style.tint(style.BLUE) if lane in offsets else style.PAPER
        style.box(page.ax, left(lane), TOP, cell - 0.03, LANE_HEIGHT, face, style.FAINT, 0.8, 0.03)
        color = style.INK if lane in offsets else style.FAINT
        style.put(page.ax, left(lane) + cell / 2 - 0.015, TOP + LANE_HEIGHT / 2, str(lane), 6.5,
                  color, "center")  # fmt: skip
    return left, cell - 0.03


def _join(page: style.Page, above: float, below: float, top: float) -> None:
    page.ax.plot([above, below], [TOP + LANE_HEIGHT, top], color=style.SKY, linewidth=0.7)
