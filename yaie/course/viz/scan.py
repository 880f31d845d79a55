"""A prefix sum, step by step: which place gets what from where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style

LEFT, RIGHT = 1.0, 0.12
TOP = 0.32
CELL_HEIGHT = 0.28
FALL = 0.42  # from one row of places to the next


@dataclass(frozen=True)
class ScanStep:
    """What the places hold after a step, and where it came from.

    Attributes:
        values: of all places.
        moves: (from, to): `to` was given, or had added, what `from` held before.
        title: what is said of the step at the left, such as "up, half = 2".
    """

    values: Sequence[int]
    moves: Sequence[tuple[int, int]] = ()
    title: str = ""


def draw_scan(steps: Sequence[ScanStep], at: style.Place | None = None) -> Figure:
    """Draw the steps from top to bottom; what a step changed is dark."""
    if not steps:
        raise ValueError("steps must have at least the numbers that are given, got none")
    count = len(steps[0].values)
    if any(len(step.values) != count for step in steps):
        raise ValueError(f"each step must have {count} values")
    cell = (style.WIDTH - LEFT - RIGHT) / count
    pitch = CELL_HEIGHT + FALL
    page = style.Page(style.WIDTH, TOP + len(steps) * pitch - FALL + 0.1, at)
    style.put(page.ax, LEFT - 0.1, TOP / 2, "place", style.SMALL, style.MUTED, "right")
    for place in range(count):
        style.put(page.ax, LEFT + (place + 0.5) * cell, TOP / 2, str(place), 6.0, style.MUTED,
                  "center")  # fmt: skip
    before = steps[0].values
    for number, step in enumerate(steps):
        y = TOP + number * pitch
        style.put(page.ax, LEFT - 0.1, y + CELL_HEIGHT / 2, step.title, style.SMALL, style.MUTED,
                  "right")  # fmt: skip
        for source, target in step.moves:
            color = style.MUTED if source == target else style.BLUE
            page.ax.annotate(
                "", (LEFT + (target + 0.5) * cell, y), (LEFT + (source + 0.5) * cell, y - FALL),
                arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.0, "shrinkA": 0,
                            "shrinkB": 0, "mutation_scale": 7},
            )  # fmt: skip
        targets = {target for _, target in step.moves}
        for place, value in enumerate(step.values):
            changed = place in targets or value != before[place]
            face = style.tint(style.BLUE, 0.45 if changed else 0.1)
            style.box(page.ax, LEFT + place * cell + 0.02, y, cell - 0.04, CELL_HEIGHT, face,
                      style.FAINT, 0.8, 0.03)  # fmt: skip
            color = style.INK if changed or not number else style.MUTED
            style.put(page.ax, LEFT + (place + 0.5) * cell, y + CELL_HEIGHT / 2, str(value),
                      7.0 if cell > 0.4 else 5.6, color, "center",
                      weight="bold" if changed else "normal")  # fmt: skip
        before = step.values
    for step in steps:
        page.say(f"{step.title}: {style.some(step.values, 16)}")
    return page.figure
