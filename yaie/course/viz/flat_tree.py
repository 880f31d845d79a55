"""A radix tree beside the arrays that hold it: which cells of which array are which node's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page

MARGIN = 0.14
LEFT = 1.05  # inches, where the cells begin
TOP = 0.12
NODE_HEIGHT, LEVEL = 0.34, 0.72  # of a node's box; from one level to the next
ROW = 0.56  # from one array to the next


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


def draw_flat_tree(view: FlatView) -> Figure:
    """Draw the tree level by level, and below it tokens, starts, children and values.

    A node has one color, in the tree and in every array. `starts` and `children` have one cell
    more than there are nodes: the end of the last.
    """
    flat, node = view.flat, view.node
    starts, children = flat.starts.tolist(), flat.children.tolist()
    tokens, values = flat.tokens.tolist(), flat.values.tolist()
    levels = _levels(children)
    top = TOP + len(levels) * LEVEL + 0.22
    page = Page(style.WIDTH, top + 4 * ROW)
    _draw_tree(page, view, levels, starts, children, tokens)
    owners = [n for n in range(len(starts) - 1) for _ in range(starts[n], starts[n + 1])]
    numbers = [*range(len(starts) - 1), None]
    longest = max(len(tokens), len(starts), 1)
    pitch = min((style.WIDTH - LEFT - MARGIN) / longest, 0.42)
    page.say(f"A tree of {style.count(len(starts) - 1, 'node')} as arrays")
    rows = (
        ("tokens", tokens, owners, 1, (node,)),
        ("starts", starts, numbers, 1, (node, node + 1) if node is not None else ()),
        ("children", children, numbers, 1, (node, node + 1) if node is not None else ()),
        ("values", values, owners[:: flat.block_size], flat.block_size, (node,)),
    )
    for row, (name, cells, own, width, framed) in enumerate(rows):
        grid = page.grid(LEFT + 0.015, top + row * ROW, pitch * width, ROW, 0.03, ROW - 0.27)
        page.put(MARGIN, grid.middle(0), name, weight="bold")
        page.say(f"{name}: {style.some(cells, 32)}")
        for i, (content, owner) in enumerate(zip(cells, own, strict=True)):
            marked = (i if own is numbers else owner) in framed
            grid.cell(
                0,
                i,
                style.WASH if owner is None else _face(owner),
                str(content),
                size=style.SMALL if pitch * width > 0.24 else 5.5,
                edge=style.INK if marked else style.PAPER,
                line=1.6 if marked else 0.8,
                radius=0.03,
            )
            page.put(grid.x(i + 0.5) - 0.015, grid.top + 0.36, str(i), 5.5, style.MUTED, "center")
    if node is not None:
        below = range(children[node], children[node + 1])
        if below:
            words = f"children of {node}: {style.count(len(below), 'node')}, "
            x, y = LEFT + len(children) * pitch + 0.15, top + 2 * ROW + 0.135
            page.note(x, y, words + " ".join(map(str, below)))
        page.say(
            f"Framed, of node {node}: tokens {starts[node]} to {starts[node + 1] - 1}, children "
            f"{style.some(below) or 'none'}"
        )
    return page.figure


def _levels(children: Sequence[int]) -> list[range]:
    """The numbers of each level's nodes, from the root down."""
    levels = [range(0, 1)]
    while len(below := range(children[levels[-1].start], children[levels[-1].stop])):
        levels.append(below)
    return levels


def _draw_tree(
    page: Page,
    view: FlatView,
    levels: Sequence[range],
    starts: Sequence[int],
    children: Sequence[int],
    tokens: Sequence[int],
) -> None:
    places = _places(children)
    pitch = (style.WIDTH - 2 * MARGIN) / (max(places) + 1)
    middles = [MARGIN + (place + 0.5) * pitch for place in places]
    for level, nodes in enumerate(levels):
        y = TOP + level * LEVEL
        for node in nodes:
            for child in range(children[node], children[node + 1]):
                xs, ys = [middles[node], middles[child]], [y + NODE_HEIGHT, y + LEVEL]
                page.plot(xs, ys, color=style.FAINT, lw=1.0, zorder=0)
            key = " ".join(map(str, tokens[starts[node] : starts[node + 1]])) or "root"
            words = style.shorten(f"{node}:  {key}", pitch - 0.2)
            width = style.text_width(words) + 0.24
            x = middles[node] - width / 2
            edge, line = (style.INK, 1.8) if node == view.node else (style.FAINT, 0.8)
            face = _face(node)
            page.cell(x, y, width, NODE_HEIGHT, words, face, edge, line, size=style.BODY)


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


def _face(node: int) -> tuple[float, float, float]:
    return style.tint(style.series_color(node - 1), 0.38) if node else style.tint(style.INK, 0.12)
