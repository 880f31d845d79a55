"""The memories of a GPU as a plan of the chip, joined by pipes as wide as they are fast."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page

MARGIN, PIPE, TOP, WIDEST, GROW = 0.42, 0.72, 1.0, 2.2, 0.11  # inches
THINNEST = 0.01  # of a pipe that would be thinner than a pixel


@dataclass(frozen=True)
class Level:
    """A memory.

    Attributes:
        num_bytes: its size on the whole device; None if machines differ.
        bandwidth: bytes per second of the whole device; None if it is not published.
        latency: cycles until a load is answered; None where it is not counted in cycles.
    """

    name: str
    num_bytes: int | None
    bandwidth: float | None = None
    latency: int | None = None


def draw_hierarchy(levels: Sequence[Level], around: Mapping[str, int] | None = None) -> Figure:
    """Draw the memories in a row, and between them pipes whose widths are the speeds, to scale.

    Args:
        levels: the nearest to the arithmetic units first.
        around: what encloses memories, the innermost first -> how many of them.
    """
    style.check_some(levels, "levels")
    page = Page(style.WIDTH, TOP + WIDEST + 0.95)
    page.say("Memories in a row, the pipes between them as wide as they are fast")
    box = (page.width - 2 * MARGIN - PIPE * len(levels)) / (len(levels) + 1)
    for ring, (name, count) in reversed([*enumerate((around or {}).items())]):
        margin = GROW * (1 + ring)
        right = MARGIN + count * (box + PIPE) + box + margin
        page.box(
            *(MARGIN - margin, TOP - 0.3 - 1.6 * margin),
            *(right - MARGIN + margin, WIDEST + 0.36 + 2.2 * margin),
            *(style.tint(style.INK, 0.04), style.MUTED),
        )
        words = page.note(right - 0.1, TOP - 0.16 - 1.6 * margin, name, "right")
        words.set_fontweight("bold")
        page.say(f"{name}: {style.some(level.name for level in levels[:count])}")
    fastest = max(level.bandwidth or 0.0 for level in levels)
    page.box(MARGIN, TOP, box, WIDEST, style.tint(style.INK, 0.75))
    for i, line in enumerate(("arithmetic", "units")):
        page.put(MARGIN + box / 2, TOP + WIDEST / 2 - 0.08 + 0.16 * i, line, style.SMALL,
                 style.PAPER, "center", weight="bold")  # fmt: skip
    for number, level in enumerate(levels):
        left, color = MARGIN + box + number * (box + PIPE), style.series_color(number)
        if level.bandwidth is not None:
            wide = max(WIDEST * level.bandwidth / fastest, THINNEST)
            page.rect(left, TOP + (WIDEST - wide) / 2, PIPE, wide, color)
        facts = [_speed(level.bandwidth)]
        if level.latency is not None:
            facts.append(f"{style.count(level.latency, 'cycle')}")
        for i, fact in enumerate(facts):
            page.put(left + PIPE / 2, TOP + WIDEST + 0.5 + 0.17 * i, fact, style.SMALL, ha="center")
        _draw_box(page, level, left + PIPE, box, color)
        size = [] if level.num_bytes is None else [_size(level.num_bytes)]
        page.say(f"{level.name}: {', '.join([*size, *facts])}")
    return page.figure


def _draw_box(page: Page, level: Level, left: float, width: float, color: str) -> None:
    """Draw a memory, with its name and its size in the middle."""
    page.box(left, TOP, width, WIDEST, style.tint(color, 0.25), color)
    lines = textwrap.wrap(level.name, 11)
    lines += [] if level.num_bytes is None else ["", _size(level.num_bytes)]
    top = TOP + WIDEST / 2 - 0.08 * (len(lines) - 1)
    for i, line in enumerate(lines):
        weight = "bold" if i < len(textwrap.wrap(level.name, 11)) else "normal"
        page.put(left + width / 2, top + 0.16 * i, line, style.SMALL, ha="center", weight=weight)


def _size(num_bytes: int) -> str:
    return _with_unit(num_bytes, "B") if num_bytes >= 1000 else f"{num_bytes} bytes"


def _speed(bandwidth: float | None) -> str:
    return "speed not published" if bandwidth is None else _with_unit(bandwidth, "B/s")


def _with_unit(value: float, unit: str) -> str:
    """A value with its prefix, and one decimal if it is small."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            value /= factor
            decimals = value < 10 and not value.is_integer()
            return f"{value:,.{int(decimals)}f} {prefix}{unit}"
    return f"{value:,.0f} {unit}"
