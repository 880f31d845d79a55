"""Passes over a row: what each reads, what it finds and what it writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page

LEFT, PANEL, TILES, BAR, LINE = 0.45, 3.3, 8, 0.15, 0.2  # inches, tiles of a row
COLORS = {"scores": style.BLUE, "values": style.ORANGE, "weights": style.VERMILION}


@dataclass(frozen=True)
class Pass:
    """One pass over memory.

    Attributes:
        reads: "scores", "values" or both.
        finds: what is known after it.
        writes: "weights", or "" if it writes nothing as long as the row.
    """

    reads: tuple[str, ...]
    finds: str
    writes: str = ""


def draw_passes(ways: Mapping[str, Sequence[Pass]]) -> Figure:
    """Draw ways side by side, their passes one below the other, each with the rows it touches."""
    style.check_some(ways, "ways")
    tall = max(sum(_height(one) for one in passes) for passes in ways.values())
    page = Page(PANEL * len(ways) + 0.1, 0.85 + tall)
    for number, (name, passes) in enumerate(ways.items()):
        x, y = 0.12 + number * PANEL, 0.5
        page.put(x, 0.2, name, style.TITLE, weight="bold")
        for index, one in enumerate(passes):
            page.cell(x, y - 0.03, 0.2, 0.2, str(index + 1), style.INK, radius=0.1,
                      color=style.PAPER, weight="bold")  # fmt: skip
            for row, what in enumerate((*one.reads, *([one.writes] if one.writes else []))):
                grid = page.grid(x + LEFT - 0.12, y + row * LINE, 0.31, BAR, 0.03)
                for tile in range(TILES):
                    face = style.tint(COLORS[what], 0.6)
                    if row < len(one.reads):
                        grid.cell(0, tile, face)
                    else:
                        grid.cell(0, tile, edge=COLORS[what])
            page.note(x + LEFT - 0.12, y + _height(one) - 0.26, one.finds)
            y += _height(one)
        each = (
            f"pass {i + 1} reads {' and '.join(one.reads)}, finds {one.finds}"
            + (f", writes {one.writes}" if one.writes else "")
            for i, one in enumerate(passes)
        )
        page.say(f"{name}: {'; '.join(each)}")
    touched = {what for passes in ways.values() for one in passes for what in one.reads}
    page.legend(0.12, page.height - 0.16, {f"{what}, read": style.tint(COLORS[what], 0.6)
                                          for what in COLORS if what in touched})  # fmt: skip
    page.box(2.6, page.height - 0.23, 0.14, 0.14, "none", COLORS["weights"], 0.8, 0.02)
    page.note(2.8, page.height - 0.16, "weights, written")
    return page.figure


def _height(one: Pass) -> float:
    """Inches that a pass takes: its rows, and the line that says what it finds."""
    return (len(one.reads) + bool(one.writes)) * LINE + 0.36
