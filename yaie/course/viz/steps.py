"""Algorithms step by step over rows of cells: scan, sum, search, merge, replay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.attention import three_places
from yaie.course.viz.page import Page, Place

# ---------------------------------------------------------------------------------- scan

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


def draw_scan(steps: Sequence[ScanStep], at: Place | None = None) -> Figure:
    """Draw the steps from top to bottom; what a step changed is dark."""
    if not steps:
        raise ValueError("steps must have at least the numbers that are given, got none")
    count = len(steps[0].values)
    if any(len(step.values) != count for step in steps):
        raise ValueError(f"each step must have {count} values")
    cell = (style.WIDTH - LEFT - RIGHT) / count
    pitch = CELL_HEIGHT + FALL
    page = Page(style.WIDTH, TOP + len(steps) * pitch - FALL + 0.1, at)
    page.note(LEFT - 0.1, TOP / 2, "place", "right")
    for place in range(count):
        page.put(LEFT + (place + 0.5) * cell, TOP / 2, str(place), 6.0, style.MUTED, "center")
    before = steps[0].values
    for number, step in enumerate(steps):
        y = TOP + number * pitch
        page.note(LEFT - 0.1, y + CELL_HEIGHT / 2, step.title, "right")
        for source, target in step.moves:
            color = style.MUTED if source == target else style.BLUE
            page.ax.annotate(
                "",
                (LEFT + (target + 0.5) * cell, y),
                (LEFT + (source + 0.5) * cell, y - FALL),
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": color,
                    "lw": 1.0,
                    "shrinkA": 0,
                    "shrinkB": 0,
                    "mutation_scale": 7,
                },
            )
        targets = {target for _, target in step.moves}
        for place, value in enumerate(step.values):
            changed = place in targets or value != before[place]
            face = style.tint(style.BLUE, 0.45 if changed else 0.1)
            color = style.INK if changed or not number else style.MUTED
            page.cell(
                LEFT + place * cell + 0.02,
                y,
                cell - 0.04,
                CELL_HEIGHT,
                str(value),
                face,
                style.FAINT,
                0.8,
                0.03,
                size=7.0 if cell > 0.4 else 5.6,
                color=color,
                weight="bold" if changed else "normal",
            )
        before = step.values
    for step in steps:
        page.say(f"{step.title}: {style.some(step.values, 16)}")
    return page.figure


# ---------------------------------------------------------------------------------- reduction

REDUCTION_LEFT, REDUCTION_RIGHT = 0.75, 0.12


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


def draw_reduction(steps: Sequence[Stage], what: str = "", at: Place | None = None) -> Figure:
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
    cell = (style.WIDTH - REDUCTION_LEFT - REDUCTION_RIGHT) / count
    height = TOP + len(steps) * CELL_HEIGHT + (len(steps) - 1) * FALL + 0.1
    page = Page(style.WIDTH, height, at)
    page.note(REDUCTION_LEFT - 0.1, TOP / 2, what, "right")
    for place in range(count):
        page.put(
            REDUCTION_LEFT + (place + 0.5) * cell, TOP / 2, str(place), 6.0, style.MUTED, "center"
        )
    for number, step in enumerate(steps):
        y = TOP + number * (CELL_HEIGHT + FALL)
        page.note(REDUCTION_LEFT - 0.1, y + CELL_HEIGHT / 2, step.title, "right")
        _draw_adds(page, step, y, cell)
        _draw_values(page, steps, number, y, cell)
    each = (f"{step.title}, {style.count(len(step.reads), 'place')}" for step in steps[1:])
    page.say(
        f"{count} numbers summed up; places that add another's number to their own: "
        f"{style.some(each)}"
    )
    page.say(f"In the end place 0 holds {steps[-1].values[0]:g}")
    return page.figure


def _draw_values(page: Page, steps: Sequence[Stage], number: int, y: float, cell: float) -> None:
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
        size = 7.0 if cell > 0.4 else 5.6
        page.cell(
            REDUCTION_LEFT + place * cell + 0.02,
            y,
            cell - 0.04,
            CELL_HEIGHT,
            f"{value:g}",
            face,
            style.FAINT,
            0.8,
            0.03,
            size=size,
            color=style.INK if counts else style.FAINT,
            weight="bold" if changed and counts else "normal",
        )


def _draw_adds(page: Page, step: Stage, y: float, cell: float) -> None:
    """A line from each place that is read down to the place that takes it in."""
    above, below = y - FALL, y
    crowded = len(step.reads) > 16  # then what a place keeps of its own goes without saying
    color = style.SKY if crowded else style.BLUE
    for target, source in step.reads.items():
        x, other = (REDUCTION_LEFT + (place + 0.5) * cell for place in (target, source))
        if not crowded:
            page.plot([x, x], [above, below], color=style.FAINT, linewidth=0.9)
        page.plot([other, x], [above, below], color=color, linewidth=0.8)
        if not crowded:
            page.plot([x], [below - 0.03], marker="v", markersize=3.0, color=style.BLUE)


# ---------------------------------------------------------------------------------- search

MARGIN = 0.14
SEARCH_LEFT = 1.25
SEARCH_CELL_HEIGHT = 0.3
HEAD, FOOT = 0.5, 0.42


@dataclass(frozen=True)
class Search:
    """One search for the first place that is greater than `target`.

    Attributes:
        values: the array, rising.
        reads: the places that were read, in order.
        found: the answer.
        name: of the way to search.
    """

    values: Sequence[int]
    target: int
    reads: Sequence[int]
    found: int
    name: str = ""


def draw_search(searches: Sequence[Search], at: Place | None = None) -> Figure:
    """Draw searches of one array below each other; the number over a cell is when it was read."""
    if not searches:
        raise ValueError("searches must have at least one, got none")
    count = len(searches[0].values)
    cell = (style.WIDTH - SEARCH_LEFT - MARGIN) / count
    row = HEAD + SEARCH_CELL_HEIGHT
    page = Page(style.WIDTH, len(searches) * row + FOOT, at)
    for index, search in enumerate(searches):
        y = index * row + HEAD
        page.put(MARGIN, y + SEARCH_CELL_HEIGHT / 2, search.name, weight="bold")
        words = style.count(len(search.reads), "read")
        page.note(MARGIN, y - 0.16, words)
        when = {place: number for number, place in enumerate(search.reads, 1)}
        for place, value in enumerate(search.values):
            x = SEARCH_LEFT + place * cell
            face = style.tint(style.BLUE, 0.4) if place in when else style.WASH
            right = place == search.found
            edge, line = (style.VERMILION, 1.8) if right else (style.PAPER, 0.8)
            size = style.SMALL if cell > 0.24 else 5.5
            page.cell(
                x + 0.015,
                y,
                cell - 0.03,
                SEARCH_CELL_HEIGHT,
                str(value),
                face,
                edge,
                line,
                0.03,
                size=size,
            )
            if place in when:
                page.put(x + cell / 2, y - 0.1, str(when[place]), 6.0, style.BLUE, "center")
    words = (
        f"token {searches[0].target} is of request {searches[0].found} (framed): the first whose "
        "end is greater"
    )
    page.note(SEARCH_LEFT, page.height - 0.2, words)
    page.say(f"Searches in {count} numbers; {words}")
    for search in searches:
        page.say(
            f"{search.name}: {style.count(len(search.reads), 'read')}, at places "
            f"{style.some(search.reads, 32)}"
        )
    return page.figure


# ---------------------------------------------------------------------------------- merge

BOX = 1.0, 0.62
GAP = 0.16
LEVEL = 1.02  # inches from a node to its children


@dataclass(frozen=True)
class MergeNode:
    """A partial result for one row: of keys, or of two others merged.

    Attributes:
        keys: which keys, in words.
        lse: their log-sum-exp.
        out: one number of the output.
        children: what was merged; none for a leaf.
    """

    keys: str
    lse: float
    out: float
    children: tuple[MergeNode, ...] = ()


def draw_merge(state: MergeNode, at: Place | None = None) -> Figure:
    """Draw a tree of merges, leaves at the top, with the share each side has in its parent."""
    leaves = count_leaves(state)
    width = 2 * MARGIN + leaves * BOX[0] + (leaves - 1) * GAP
    deep = depth(state)
    page = Page(width, 2 * MARGIN + deep * LEVEL + BOX[1], at)
    _draw(page, state, MARGIN, deep)
    results = [f"{leaf.keys} {three_places(leaf.lse)}" for leaf in _leaves(state)]
    page.say(
        f"A tree of merges, {deep} deep, of {style.count(leaves, 'partial result')}, with their "
        f"lse: {style.some(results)}; in the end lse {three_places(state.lse)}, "
        f"out {three_places(state.out)}"
    )
    return page.figure


def depth(node: MergeNode) -> int:
    """How many merges lie between the node and its farthest leaf."""
    return max((depth(child) + 1 for child in node.children), default=0)


def count_leaves(node: MergeNode) -> int:
    """How many partial results the tree begins with."""
    return sum(map(count_leaves, node.children)) or 1


def _leaves(node: MergeNode) -> list[MergeNode]:
    return [leaf for child in node.children for leaf in _leaves(child)] or [node]


def _draw(page: Page, node: MergeNode, left: float, level: int) -> tuple[float, float]:
    """Draw a subtree whose leftmost leaf is at `left`; return the middle and bottom of its root."""
    ax, x, ends = page.ax, left, []
    for child in node.children:
        ends.append(_draw(page, child, x, level - 1))
        x += count_leaves(child) * (BOX[0] + GAP)
    middle = sum(x for x, _ in ends) / len(ends) if ends else left + BOX[0] / 2
    top = MARGIN + (level if node.children else 0) * LEVEL
    for child, (child_x, child_y) in zip(node.children, ends, strict=True):
        ax.plot([child_x, middle], [child_y, top], color=style.FAINT, lw=1.2, zorder=0)
        known = math.isfinite(child.lse) and math.isfinite(node.lse)
        share = math.exp(min(child.lse - node.lse, 9.0)) if known else 0.0
        at_x, at_y = child_x + (middle - child_x) * 0.62, child_y + (top - child_y) * 0.62
        ax.box(at_x - 0.2, at_y - 0.09, 0.4, 0.18, style.PAPER, radius=0.04, zorder=1)
        ax.put(at_x, at_y, f"{share:.0%}", style.SMALL, style.VERMILION, "center", zorder=2)
    color = style.GREEN if node.children else style.BLUE
    face = style.tint(color, 0.18)
    ax.box(middle - BOX[0] / 2, top, *BOX, face, style.tint(color, 0.6))
    words = style.shorten(node.keys, BOX[0] - 0.1, style.SMALL)
    ax.note(middle, top + 0.13, words, "center")
    ax.put(middle, top + 0.31, f"lse {three_places(node.lse)}", ha="center")
    ax.put(middle, top + 0.49, f"out {three_places(node.out)}", ha="center")
    return middle, top + BOX[1]


# ---------------------------------------------------------------------------------- trays

TRAYS_MARGIN, TRAYS_LEFT = 0.14, 0.95
CELL, HEIGHT, ROW = 0.44, 0.3, 0.36


@dataclass(frozen=True)
class Tray:
    """What a replay reads, and what it returns.

    Attributes:
        size: rows of the capture.
        rows: of the batch; those behind are padding.
        inputs: name -> the numbers in the captured tensor, `size` of them.
        written: places of the cache that the replay wrote.
        wanted: those that the batch asked it to write.
    """

    size: int
    rows: int
    inputs: Mapping[str, Sequence[int]]
    written: Sequence[int] = field(default_factory=list)
    wanted: Sequence[int] = field(default_factory=list)


def draw_tray(tray: Tray, at: Place | None = None) -> Figure:
    """Draw the rows of a batch in blue, padding in gray, and the places written below."""
    width = max(TRAYS_LEFT + tray.size * CELL + TRAYS_MARGIN, 3.0)
    page = Page(width, 0.34 + ROW * len(tray.inputs) + 0.34, at)
    words = f"{style.count(tray.rows, 'row')}, replay of size {tray.size}"
    page.put(TRAYS_MARGIN, 0.17, words, style.SMALL, weight="bold")
    for i, (name, numbers) in enumerate(tray.inputs.items()):
        y = 0.34 + i * ROW
        page.note(TRAYS_LEFT - 0.08, y + HEIGHT / 2, name, "right")
        for j, number in enumerate(numbers):
            color = style.BLUE if j < tray.rows else style.FAINT
            face = style.tint(color, 0.35)
            page.box(TRAYS_LEFT + j * CELL, y, CELL - 0.04, HEIGHT, face, color, 0.8)
            x = TRAYS_LEFT + (j + 0.5) * CELL - 0.02
            page.put(x, y + HEIGHT / 2, str(number), style.SMALL, ha="center")
    written, stray = list(tray.written), sorted(set(tray.written) - set(tray.wanted))
    words = f"writes {written}" + (f", {stray} of nobody" if stray else "")
    color = style.VERMILION if stray else style.MUTED
    page.put(TRAYS_LEFT, page.height - 0.18, words, style.SMALL, color)
    page.say(f"{style.count(tray.rows, 'row')} in a replay of size {tray.size}; {words}")
    each = (f"{name} {style.some(numbers)}" for name, numbers in tray.inputs.items())
    page.say("; ".join(each))
    return page.figure
