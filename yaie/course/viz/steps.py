"""Algorithms step by step over rows of cells: scan, sum, search, merge, replay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.attention import three_places
from yaie.course.viz.page import Page

MARGIN = 0.14
CELL_HEIGHT = 0.28
FALL = 0.42  # from one row of places to the next


def _check_steps(steps: Sequence, name: str) -> int:
    """How many values each step has: the same number in all of them."""
    style.check_some(steps, name)
    count = len(steps[0].values)
    if any(len(step.values) != count for step in steps):
        raise ValueError(f"each step must have {count} values")
    return count


# ---------------------------------------------------------------------------------- scan, sum


@dataclass(frozen=True)
class ScanStep:
    """What the places hold after a step, and where it came from.

    Attributes:
        values: of all places.
        moves: (from, to): `to` was given, or had added, what `from` held before.
        title: what is said of the step at the left, such as "up, half = 2".
    """

    values: Sequence[float]
    moves: Sequence[tuple[int, int]] = ()
    title: str = ""


def draw_scan(steps: Sequence[ScanStep]) -> Figure:
    """Draw the steps from top to bottom; what a step changed is dark."""
    count = _check_steps(steps, "steps")
    page = _draw_steps(steps, "place", [set(range(count))] * len(steps))
    for step in steps:
        page.say(f"{step.title}: {style.some(step.values, 16)}")
    return page.figure


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


def draw_reduction(steps: Sequence[Stage], what: str = "") -> Figure:
    """Draw the steps from top to bottom; places that no longer count are pale.

    Args:
        steps: the numbers that are given first, then each step.
        what: a place, in the picture's words: "thread", "lane".
    """
    count = _check_steps(steps, "steps")
    needed = [{place for pair in step.reads.items() for place in pair} for step in steps[1:]]
    needed.append(set(steps[-1].reads) or set(range(count)))
    drawn = []
    for step in steps:
        # With many lanes, the lines from each lane to itself would only crowd the picture.
        own = step.reads if len(step.reads) <= 16 else {}
        moves = [*((place, place) for place in own), *((b, a) for a, b in step.reads.items())]
        drawn.append(ScanStep(step.values, moves, step.title))
    page = _draw_steps(drawn, what, needed)
    each = (f"{step.title}, {style.count(len(step.reads), 'place')}" for step in steps[1:])
    page.say(
        f"{count} numbers summed up; places that add another's number to their own: "
        f"{style.some(each)}"
    )
    page.say(f"In the end place 0 holds {steps[-1].values[0]:g}")
    return page.figure


def _draw_steps(steps: Sequence[ScanStep], what: str, needed: Sequence[set[int]]) -> Page:
    """A row of cells for each step, lines for its moves; places that are not needed are pale."""
    count, left = len(steps[0].values), 1.0
    width, pitch = (style.WIDTH - left - 0.12) / count, CELL_HEIGHT + FALL
    page = Page(style.WIDTH, 0.42 + len(steps) * pitch - FALL)
    grid = page.grid(left + 0.02, 0.32, width, pitch, 0.04, FALL)
    page.note(left - 0.1, 0.16, what, "right")
    for place in range(count):
        grid.head(place, str(place), 6.0)
    before = steps[0].values
    for row, step in enumerate(steps):
        grid.name(row, step.title, color=style.MUTED)
        for source, target in step.moves:
            crowded = len(step.moves) > 20
            color = style.SKY if crowded else style.FAINT if source == target else style.BLUE
            xs, y = [grid.x(place + 0.5) - 0.02 for place in (source, target)], grid.y(row)
            page.plot(xs, [y - FALL, y], color=color, lw=0.9)
            if not crowded:
                page.plot(xs[1:], [y - 0.03], marker="v", markersize=3.0, color=color)
        targets = {target for _, target in step.moves}
        for place, value in enumerate(step.values):
            counts = place in needed[row]
            changed = place in targets or value != before[place]
            face = style.tint(style.BLUE, 0.45 if changed else 0.12)
            grid.cell(
                row,
                place,
                face if counts or changed else style.PAPER,
                f"{value:g}",
                size=7.0 if width > 0.4 else 5.6,
                color=style.INK if counts else style.MUTED,
                edge=style.FAINT,
                radius=0.03,
                weight="bold" if changed and counts else "normal",
            )
        before = step.values
    return page


# ---------------------------------------------------------------------------------- search


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


def draw_search(searches: Sequence[Search]) -> Figure:
    """Draw searches of one array below each other; the number over a cell is when it was read."""
    count = _check_steps(searches, "searches")
    left, head, height = 1.25, 0.5, 0.3
    page = Page(style.WIDTH, len(searches) * (head + height) + 0.42)
    width = (style.WIDTH - left - MARGIN) / count
    grid = page.grid(left + 0.015, head, width, head + height, 0.03, head)
    first = searches[0]
    words = (
        f"token {first.target} is of request {first.found} (framed): the first whose end is greater"
    )
    page.note(left, page.height - 0.2, words)
    page.say(f"Searches in {count} numbers; {words}")
    for row, search in enumerate(searches):
        reads = style.count(len(search.reads), "read")
        page.put(MARGIN, grid.middle(row), search.name, weight="bold")
        page.note(MARGIN, grid.y(row) - 0.16, reads)
        page.say(f"{search.name}: {reads}, at places {style.some(search.reads, 32)}")
        when = {place: str(number) for number, place in enumerate(search.reads, 1)}
        for place, value in enumerate(search.values):
            face = style.tint(style.BLUE, 0.4) if place in when else style.WASH
            right = place == search.found
            look = {"edge": style.VERMILION, "line": 1.8} if right else {"edge": style.PAPER}
            size = style.SMALL if width > 0.24 else 5.5
            grid.cell(row, place, face, str(value), size=size, radius=0.03, **look)
            if place in when:
                x, y = grid.x(place + 0.5) - 0.015, grid.y(row) - 0.1
                page.put(x, y, when[place], 6.0, style.BLUE, "center")
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


def draw_merge(state: MergeNode) -> Figure:
    """Draw a tree of merges, leaves at the top, with the share each side has in its parent."""
    leaves, deep = _leaves(state), _depth(state)
    width = 2 * MARGIN + len(leaves) * (BOX[0] + GAP) - GAP
    page = Page(width, 2 * MARGIN + deep * LEVEL + BOX[1])
    _draw(page, state, MARGIN, deep)
    results = [f"{leaf.keys} {three_places(leaf.lse)}" for leaf in leaves]
    page.say(
        f"A tree of merges, {deep} deep, of {style.count(len(leaves), 'partial result')}, with "
        f"their lse: {style.some(results)}; in the end lse {three_places(state.lse)}, "
        f"out {three_places(state.out)}"
    )
    return page.figure


def _depth(node: MergeNode) -> int:
    """How many merges lie between the node and its farthest leaf."""
    return max((_depth(child) + 1 for child in node.children), default=0)


def _leaves(node: MergeNode) -> list[MergeNode]:
    return [leaf for child in node.children for leaf in _leaves(child)] or [node]


def _percent(share: float) -> str:
    """With a digit after the point where the share would be told as none."""
    return f"{share:.1%}" if 0 < share < 0.005 else f"{share:.0%}"


def _draw(page: Page, node: MergeNode, left: float, level: int) -> tuple[float, float]:
    """Draw a subtree whose leftmost leaf is at `left`; return the middle and bottom of its root."""
    ax, x, ends = page.ax, left, []
    for child in node.children:
        ends.append(_draw(page, child, x, level - 1))
        x += len(_leaves(child)) * (BOX[0] + GAP)
    middle = sum(x for x, _ in ends) / len(ends) if ends else left + BOX[0] / 2
    top = MARGIN + (level if node.children else 0) * LEVEL
    for child, (child_x, child_y) in zip(node.children, ends, strict=True):
        ax.plot([child_x, middle], [child_y, top], color=style.FAINT, lw=1.2, zorder=0)
        known = math.isfinite(child.lse) and math.isfinite(node.lse)
        share = math.exp(min(child.lse - node.lse, 9.0)) if known else 0.0
        at_x, at_y = child_x + (middle - child_x) * 0.62, child_y + (top - child_y) * 0.62
        ax.box(at_x - 0.2, at_y - 0.09, 0.4, 0.18, style.PAPER, radius=0.04, zorder=1)
        ax.put(at_x, at_y, _percent(share), style.SMALL, style.VERMILION, "center", zorder=2)
    color = style.GREEN if node.children else style.BLUE
    face = style.tint(color, 0.18)
    ax.box(middle - BOX[0] / 2, top, *BOX, face, style.tint(color, 0.6))
    words = style.shorten(node.keys, BOX[0] - 0.1, style.SMALL)
    ax.note(middle, top + 0.13, words, "center")
    ax.put(middle, top + 0.31, f"lse {three_places(node.lse)}", ha="center")
    ax.put(middle, top + 0.49, f"out {three_places(node.out)}", ha="center")
    return middle, top + BOX[1]


# ---------------------------------------------------------------------------------- trays


@dataclass(frozen=True)
class Tray:
    """What a replay reads, and what it returns.

    Attributes:
        size: rows of the capture.
        rows: of the batch; those after them are padding.
        inputs: name -> the numbers in the captured tensor, `size` of them.
        written: places of the cache that the replay wrote.
        wanted: those that the batch asked it to write.
    """

    size: int
    rows: int
    inputs: Mapping[str, Sequence[int]]
    written: Sequence[int] = field(default_factory=list)
    wanted: Sequence[int] = field(default_factory=list)


def draw_tray(tray: Tray) -> Figure:
    """Draw the rows of a batch in blue, padding in gray, and the places written below."""
    left, cell, row = 0.95, 0.44, 0.36
    width = max(left + tray.size * cell + MARGIN, 3.0)
    page = Page(width, 0.68 + row * len(tray.inputs))
    grid = page.grid(left, 0.34, cell, row, 0.04, 0.06)
    rows = style.count(tray.rows, "row")
    page.put(MARGIN, 0.17, f"{rows}, replay of size {tray.size}", style.SMALL, weight="bold")
    for i, (name, numbers) in enumerate(tray.inputs.items()):
        grid.name(i, name, color=style.MUTED)
        for j, number in enumerate(numbers):
            color = style.BLUE if j < tray.rows else style.FAINT
            grid.cell(i, j, style.tint(color, 0.35), str(number), edge=color, radius=0.05)
    written, stray = list(tray.written), sorted(set(tray.written) - set(tray.wanted))
    words = f"writes {written}" + (f", {stray} for padding" if stray else "")
    color = style.VERMILION if stray else style.MUTED
    page.put(left, page.height - 0.18, words, style.SMALL, color)
    page.say(f"{rows} in a replay of size {tray.size}; {words}")
    each = (f"{name} {style.some(numbers)}" for name, numbers in tray.inputs.items())
    page.say("; ".join(each))
    return page.figure
