"""A radix tree beside the arrays that hold it: which cells of which array are which node's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

MARGIN = 0.14
LEFT = 1.05  # inches, where the cells begin
TOP = 0.12
NODE_HEIGHT, LEVEL = 0.34, 0.72  # of a node's box; from one level to the next
CELL_HEIGHT, ROW = 0.27, 0.56  # of a cell; from one array to the next
WIDEST_CELL = 0.42


@dataclass(frozen=True)
class FlatView:
    """A flat tree with one node pointed at, or none.

    Attributes:
        flat: a `FlatTree` of `yaie.course.lessons.ops.reference.radix`; anything with its four
            arrays and block_size.
        node: whose cells are framed; so are those of its children, in `children`.
    """

    flat: Any
    node: int | None = None


def draw_flat_tree(view: FlatView, at: Place | None = None) -> Figure:
    """Draw the tree level by level, and below it tokens, starts, children and values.

    A node has one color, in the tree and in every array. `starts` and `children` have one cell
    more than there are nodes: the end of the last.
    """
    flat = view.flat
    starts, children = flat.starts.tolist(), flat.children.tolist()
    tokens, values = flat.tokens.tolist(), flat.values.tolist()
    levels = _levels(children)
    arrays_top = TOP + len(levels) * LEVEL + 0.22
    page = Page(style.WIDTH, arrays_top + 4 * ROW, at)
    _draw_tree(page, view, levels, starts, children, tokens)
    owners = [n for n in range(len(starts) - 1) for _ in range(starts[n], starts[n + 1])]
    numbers = [*range(len(starts) - 1), None]
    longest = max(len(tokens), len(starts))
    cell = min((style.WIDTH - LEFT - MARGIN) / max(longest, 1), WIDEST_CELL)
    child_of = range(*_children(view.node, children))
    rows = (
        ("tokens", tokens, owners, 1),
        ("starts", starts, numbers, 1),
        ("children", children, numbers, 1),
        ("values", values, owners[:: flat.block_size], flat.block_size),
    )
    for index, (name, cells, own, width) in enumerate(rows):
        y = arrays_top + index * ROW
        page.put(MARGIN, y + CELL_HEIGHT / 2, name, weight="bold")
        for i, (content, owner) in enumerate(zip(cells, own, strict=True)):
            mine = own if name in ("tokens", "values") else None
            framed = view.node is not None and (
                mine[i] == view.node if mine else i in (view.node, view.node + 1)
            )
            _cell(page, LEFT + i * cell * width, y, cell * width, content, owner, i, framed)
        if name == "children" and child_of:
            words = f"children of {view.node}: {style.count(len(child_of), 'node')}, "
            words += " ".join(map(str, child_of))
            x = LEFT + len(cells) * cell + 0.15
            page.note(x, y + CELL_HEIGHT / 2, words)
    page.say(f"A tree of {style.count(len(starts) - 1, 'node')} as arrays")
    for name, cells, _, _ in rows:
        page.say(f"{name}: {style.some(cells, 32)}")
    if view.node is not None:
        of = range(starts[view.node], starts[view.node + 1])
        page.say(
            f"Framed, of node {view.node}: tokens {of.start} to {of.stop - 1}, children "
            f"{style.some(child_of) or 'none'}"
        )
    return page.figure


def _levels(children: Sequence[int]) -> list[range]:
    """The numbers of each level's nodes, from the root down."""
    levels = [range(0, 1)]
    while len(below := range(children[levels[-1].start], children[levels[-1].stop])):
        levels.append(below)
    return levels


def _children(node: int | None, children: Sequence[int]) -> tuple[int, int]:
    return (0, 0) if node is None else (children[node], children[node + 1])


def _draw_tree(
    page: Page,
    view: FlatView,
    levels: Sequence[range],
    starts: Sequence[int],
    children: Sequence[int],
    tokens: Sequence[int],
) -> None:
    places = _places(children)
    leaves = max(places) + 1
    pitch = (style.WIDTH - 2 * MARGIN) / leaves
    depth = {node: level for level, nodes in enumerate(levels) for node in nodes}
    for node, place in enumerate(places):
        x, y = MARGIN + (place + 0.5) * pitch, TOP + depth[node] * LEVEL
        for child in range(children[node], children[node + 1]):
            to = MARGIN + (places[child] + 0.5) * pitch
            page.plot([x, to], [y + NODE_HEIGHT, y + LEVEL], color=style.FAINT, lw=1.0, zorder=0)
    for node, place in enumerate(places):
        x, y = MARGIN + (place + 0.5) * pitch, TOP + depth[node] * LEVEL
        key = " ".join(map(str, tokens[starts[node] : starts[node + 1]])) or "root"
        words = style.shorten(f"{node}:  {key}", pitch - 0.2, style.BODY)
        width = style.text_width(words, style.BODY) + 0.24
        page.cell(
            x - width / 2,
            y,
            width,
            NODE_HEIGHT,
            words,
            _face(node),
            *_edge(node, view),
            size=style.BODY,
        )


def _places(children: Sequence[int]) -> list[float]:
    """How far to the right each node stands: leaves in a row, parents in the middle of theirs."""
    places = [0.0] * (len(children) - 1)
    used = 0

    def put(node: int) -> float:
        nonlocal used
        below = range(children[node], children[node + 1])
        if below:
            inner = [put(child) for child in below]
            places[node] = (inner[0] + inner[-1]) / 2
        else:
            places[node] = used
            used += 1
        return places[node]

    put(0)
    return places


def _cell(
    page: Page,
    x: float,
    y: float,
    width: float,
    content: int,
    owner: int | None,
    i: int,
    framed: bool,
) -> None:
    face = style.WASH if owner is None else _face(owner)
    edge, line = (style.INK, 1.6) if framed else (style.PAPER, 0.8)
    size = style.SMALL if width > 0.24 else 5.5
    page.cell(
        x + 0.015, y, width - 0.03, CELL_HEIGHT, str(content), face, edge, line, 0.03, size=size
    )
    page.put(x + width / 2, y + CELL_HEIGHT + 0.09, str(i), 5.2, style.MUTED, "center")


def _face(node: int) -> tuple[float, float, float]:
    return style.tint(style.series_color(node - 1), 0.38) if node else style.tint(style.INK, 0.12)


def _edge(node: int, view: FlatView) -> tuple[str, float]:
    if node == view.node:
        return style.INK, 1.8
    return style.FAINT, 0.8
