"""The programs of a Triton launch on their tensor, and the bytes that they move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from yaie.course.viz import style

MARGIN = 0.12
LEFT = 1.15  # inches, where the lanes begin
CELL = 0.25  # one lane
GAP = 0.07  # between blocks
TOP = 0.58
MOST_LANES = 32
MOST_BLOCKS = 24

Lane = tuple[int, bool]  # an element, and whether the mask lets the lane take part


@dataclass(frozen=True)
class Programs:
    """Which elements of a tensor the programs of a launch touch.

    Attributes:
        name: of the tensor.
        num_elements: of the tensor.
        blocks: (program, its lanes), one for each access, in the order of the programs.
    """

    name: str
    num_elements: int
    blocks: tuple[tuple[int, tuple[Lane, ...]], ...]


def programs_of(trace: Any, name: str, kind: str) -> Programs:
    """From a `yaie.course.core.triton.Trace`: the loads, or the stores, of one tensor."""
    accesses = trace.of(name, kind)
    if not trace.accesses:  # without an interpreter there is nothing to see
        return Programs(name, 0, ())
    if not accesses:
        raise ValueError(f"trace must have a {kind} of {name!r}, got none")
    blocks = tuple(
        (
            a.program[0],
            tuple(zip(a.elements.ravel().tolist(), a.mask.ravel().tolist(), strict=True)),
        )
        for a in accesses
    )
    return Programs(name, accesses[0].num_elements, blocks)


def draw_programs(state: Programs, at: style.Place | None = None) -> Figure:
    """Draw each block as a row of lanes with the number of the element; a color is a program.

    Lanes that the mask keeps out are gray. Lanes that are let in although their element does not
    exist are red.
    """
    if not state.blocks:
        page = style.Page(4.6, 0.36, at)
        words = "No program was watched: that takes Triton's interpreter."
        page.say(words)
        style.put(page.ax, MARGIN, 0.18, words, style.BODY, style.MUTED)
        return page.figure
    lanes = max(len(block) for _, block in state.blocks)
    if lanes > MOST_LANES or len(state.blocks) > MOST_BLOCKS:
        raise ValueError(
            f"at most {MOST_BLOCKS} blocks of {MOST_LANES} lanes can be drawn, got "
            f"{len(state.blocks)} of {lanes}"
        )
    width = max(LEFT + lanes * CELL + MARGIN, 4.6)
    page = style.Page(width, TOP + len(state.blocks) * (CELL + GAP) + 0.06, at)
    masked = stray = 0
    for lane in range(0, lanes, 4):
        style.put(page.ax, LEFT + (lane + 0.5) * CELL - 0.015, TOP - 0.1, str(lane), 6.5,
                  style.MUTED, "center")  # fmt: skip
    style.put(page.ax, LEFT - 0.12, TOP - 0.1, "lane", style.SMALL, style.MUTED, "right")
    for row, (program, block) in enumerate(state.blocks):
        y = TOP + row * (CELL + GAP)
        style.put(page.ax, MARGIN, y + CELL / 2, f"program {program}", style.SMALL, weight="bold")
        for lane, (element, inside) in enumerate(block):
            exists = 0 <= element < state.num_elements
            masked += not inside
            stray += inside and not exists
            face, ink = style.tint(style.series_color(program), 0.45), style.INK
            if not inside:
                face, ink = style.WASH, style.FAINT
            elif not exists:
                face, ink = style.VERMILION, style.PAPER
            x = LEFT + lane * CELL
            page.ax.add_artist(Rectangle((x, y), CELL - 0.03, CELL - 0.03, facecolor=face))
            style.put(page.ax, x + CELL / 2 - 0.015, y + CELL / 2 - 0.015, str(element), 6.2, ink,
                      "center")  # fmt: skip
    programs = style.count(len({program for program, _ in state.blocks}), "program")
    words = f"{programs} on {state.name}, {style.count(state.num_elements, 'element')}"
    style.put(page.ax, MARGIN, 0.16, words, style.BODY, weight="bold")
    note = f"{style.count(masked, 'lane')} masked (gray)" if masked else ""
    if stray:
        note = f"{style.count(stray, 'lane')} outside (red)"
    style.put(page.ax, page.width - MARGIN, 0.16, note, style.SMALL, style.MUTED, "right")
    page.say(f"{words}; {note or 'every lane takes part'}")
    spans = {}
    for program, block in state.blocks:
        spans.setdefault(program, []).extend(element for element, inside in block if inside)
    each = (f"{min(own)} to {max(own)} by program {p}" for p, own in spans.items() if own)
    page.say(f"Elements: {style.some(each)}")
    return page.figure


def draw_traffic(
    kinds: Mapping[str, Mapping[str, int]], at: style.Place | None = None
) -> Figure:  # fmt: skip
    """Draw a bar for each way to compute the same: bytes read, then bytes written.

    Args:
        kinds: name of the way → {"read": bytes, "written": bytes}.
    """
    left, width, row = 2.1, 5.0, 0.34
    page = style.Page(9.0, 0.42 + row * len(kinds) + 0.06, at)
    most = max(sum(parts.values()) for parts in kinds.values())
    colors = {"read": style.BLUE, "written": style.ORANGE}
    x = left
    for part, color in colors.items():
        style.box(page.ax, x, 0.1, 0.12, 0.12, color, radius=0.0)
        style.put(page.ax, x + 0.18, 0.165, f"bytes {part}", style.SMALL, style.MUTED)
        x += 1.15
    for number, (name, parts) in enumerate(kinds.items()):
        y = 0.42 + number * row
        style.put(page.ax, left - 0.12, y + row / 2 - 0.03, name, style.BODY, ha="right")
        x = left
        for part, color in colors.items():
            length = width * parts[part] / most
            page.ax.add_artist(Rectangle((x, y), length, row - 0.1, facecolor=color))
            x += length
        words = f"{sum(parts.values()):,}"
        style.put(page.ax, x + 0.1, y + row / 2 - 0.03, words, style.SMALL)
    each = (
        f"{name}: {parts['read']:,} bytes read, {parts['written']:,} written"
        for name, parts in kinds.items()
    )
    page.say("; ".join(each))
    return page.figure
