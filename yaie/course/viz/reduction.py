"""A sum, step by step: which place takes in which, and what each place holds after every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

LEFT, RIGHT = 0.75, 0.12
TOP = 0.32
CELL_HEIGHT = 0.28
FALL = 0.42  # from one row of places to the next


@dataclass(frozen=True)
class Stage:
    """One step of a reduction.

    Attributes:
        values: what the places hold after it.
        reads: place -> the other place that it adds to its own. Empty for the first row.
        title: what is said of it at the left, such as "step 8".
    """

    values: Sequence[float]
    reads: dict[int, int]
    title: str


def draw_reduction(steps: Sequence[Stage], what: str = "", at: style.Place | None = None) -> Figure:
    """Draw the steps from top to bottom; places that no longer count are pale.

    Args:
        steps: the numbers that are given first, then each step.
        what: a place, in the picture's words: "thread", "lane".
    """
    if not steps:
        raise ValueError("steps must have at least the numbers that are given, got none")
    count = len(steps[0].values)
    if any(len(step.values) != count for step in steps):
        raise ValueError(
            f"each step must have {count} values, got {[len(s.values) for s in steps]}"
        )
    cell = (style.WIDTH - LEFT - RIGHT) / count
    height = TOP + len(steps) * CELL_HEIGHT + (len(steps) - 1) * FALL + 0.1
    page = style.Page(style.WIDTH, height, at)
    style.put(page.ax, LEFT - 0.1, TOP / 2, what, style.SMALL, style.MUTED, "right")
    for place in range(count):
        style.put(page.ax, LEFT + (place + 0.5) * cell, TOP / 2, str(place), 6.0, style.MUTED,
                  "center")  # fmt: skip
    for number, step in enumerate(steps):
        y = TOP + number * (CELL_HEIGHT + FALL)
        style.put(page.ax, LEFT - 0.1, y + CELL_HEIGHT / 2, step.title, style.SMALL, style.MUTED,
                  "right")  # fmt: skip
        _draw_adds(page, step, y, cell)
        _draw_values(page, steps, number, y, cell)
    each = (f"{step.title}, {style.count(len(step.reads), 'place')}" for step in steps[1:])
    page.say(
        f"{count} numbers summed up; places that add another's number to their own: "
        f"{style.some(each)}"
    )
    page.say(f"In the end place 0 holds {steps[-1].values[0]:g}")
    return page.figure


def _draw_values(
    page: style.Page, steps: Sequence[Stage], number: int, y: float, cell: float
) -> None:
    step = steps[number]
    later = steps[number + 1 :]
    needed = {p for s in later[:1] for pair in s.reads.items() for p in pair}
    done = not later
    for place, value in enumerate(step.values):
        changed = place in step.reads
        counts = place in needed or (done and (changed or number == 0))
        face = style.tint(style.BLUE, 0.45) if changed else style.tint(style.BLUE, 0.14)
        if not counts:
            face = style.PAPER
        style.box(page.ax, LEFT + place * cell + 0.02, y, cell - 0.04, CELL_HEIGHT, face,
                  style.FAINT, 0.8, 0.03)  # fmt: skip
        size = 7.0 if cell > 0.4 else 5.6
        style.put(page.ax, LEFT + (place + 0.5) * cell, y + CELL_HEIGHT / 2, f"{value:g}", size,
                  style.INK if counts else style.FAINT, "center",
                  weight="bold" if changed and counts else "normal")  # fmt: skip


def _draw_adds(page: style.Page, step: Stage, y: float, cell: float) -> None:
    """A line from each place that is read down to the place that takes it in."""
    above, below = y - FALL, y
    crowded = len(step.reads) > 16  # then what a place keeps of its own goes without saying
    color = style.SKY if crowded else style.BLUE
    for target, source in step.reads.items():
        x, other = (LEFT + (place + 0.5) * cell for place in (target, source))
        if not crowded:
            page.ax.plot([x, x], [above, below], color=style.FAINT, linewidth=0.9)
        page.ax.plot([other, x], [above, below], color=color, linewidth=0.8)
        if not crowded:
            page.ax.plot([x], [below - 0.03], marker="v", markersize=3.0, color=style.BLUE)
