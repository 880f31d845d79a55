"""What a build makes and what autograd runs: binaries and backward passes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page

# ---------------------------------------------------------------------------------- binary

MARGIN = 0.14
WHOLE, LEAST = 9.4, 0.5  # inches of all pieces, and of the smallest
TOP, HEIGHT = 0.62, 0.62
CARDS = 1.95


@dataclass(frozen=True)
class Piece:
    """A part of the file.

    Attributes:
        name: such as "sm_80".
        size: bytes.
        kind: "code" for one architecture, "PTX", or "host".
    """

    name: str
    size: int
    kind: str = "code"


COLORS = {"code": style.BLUE, "PTX": style.ORANGE, "host": style.FAINT}


def draw_binary(
    pieces: Sequence[Piece], cards: Mapping[str, str | None], title: str = ""
) -> Figure:
    """Draw the pieces side by side, the larger the wider, and the cards below.

    Args:
        cards: the name of each card -> the piece that it runs; None if it can run none.
    """
    kinds = {piece.name: piece.kind for piece in pieces}
    for card, piece in cards.items():
        if piece is not None and piece not in kinds:
            raise ValueError(f"{card} must take one of {sorted(kinds)}, got {piece!r}")
    page = Page(style.WIDTH - 0.3, CARDS + 0.5 + MARGIN)
    page.put(MARGIN, 0.2, title, weight="bold")
    room = (WHOLE - LEAST * len(pieces)) / sum(piece.size for piece in pieces)
    x, middle = MARGIN, {}
    for piece in pieces:
        width = LEAST + room * piece.size
        color = COLORS[piece.kind]
        page.box(x + 0.01, TOP, width - 0.02, HEIGHT, style.tint(color, 0.5), color)
        center = middle[piece.name] = x + width / 2
        label = style.shorten(piece.name, max(width - 0.08, 0.3), style.SMALL)
        page.put(center, TOP + 0.23, label, style.SMALL, ha="center")
        page.put(center, TOP + 0.43, f"{piece.size / 1000:.1f} kB", style.SMALL, ha="center")
        x += width
    step = WHOLE / max(len(cards), 1)
    for i, (card, piece) in enumerate(cards.items()):
        center, color = MARGIN + (i + 0.5) * step, style.MUTED
        says = "compiles the PTX" if kinds.get(piece) == "PTX" else f"runs {piece}"
        if piece is None:
            says, color = "runs none of it", style.VERMILION
        else:
            ys = [TOP + HEIGHT + 0.03, CARDS - 0.03]
            page.plot([middle[piece], center], ys, color=style.MUTED, lw=1.0)
        page.box(center - step / 2 + 0.05, CARDS, step - 0.1, 0.5, style.WASH, color, 0.8)
        page.put(center, CARDS + 0.17, card, style.SMALL, ha="center")
        page.put(center, CARDS + 0.36, says, style.SMALL, color, "center")
    sizes = (f"{piece.name} {piece.size / 1000:.1f} kB" for piece in pieces)
    runs = (f"{card} {piece or 'none of it'}" for card, piece in cards.items())
    page.say(f"{title}: {style.some(sizes)}. What each card runs: {style.some(runs)}")
    return page.figure


# ---------------------------------------------------------------------------------- autograd

HEAD, BOX, ROW = 0.66, 0.34, 0.56
GAP = 0.34  # inches between two columns
MOST_NODES = 40


def draw_autograd(result, leaves: Mapping[str, object]) -> Figure:
    """Draw the functions that a backward pass will call, leaves on the left.

    Torch's are called as the operator is that they belong to, "Mul" for MulBackward0.

    Args:
        result: a tensor with a `grad_fn`.
        leaves: name -> the leaf tensor; others are called "leaf".
    """
    if result.grad_fn is None:
        raise ValueError("result must have a grad_fn: nothing before it requires a gradient")
    names = {id(tensor): name for name, tensor in leaves.items()}
    depth, edges = _walk(result.grad_fn)
    deepest = max(depth.values())
    columns = [[] for _ in range(deepest + 1)]
    for node in sorted(depth, key=lambda node: hasattr(node, "variable")):  # leaves below
        columns[deepest - depth[node]].append(node)
    labels = {node: _label(node, names) for node in depth}
    rows = max(map(len, columns))
    places, x = {}, MARGIN
    for nodes in columns:
        width = max(style.text_width(labels[node]) for node in nodes) + 0.2
        top = HEAD + (rows - len(nodes)) * ROW / 2
        for i, node in enumerate(nodes):
            places[node] = (x, top + i * ROW, width)
        x += width + GAP
    page = Page(x + style.text_width("result") + 0.1, HEAD + 0.05 + rows * ROW)
    for node, (left, y, width) in places.items():
        color = style.BLUE if node.name()[-1].isdigit() else style.ORANGE  # torch's have a number
        color = style.GREEN if hasattr(node, "variable") else color
        face = style.tint(color, 0.35)
        page.cell(left, y, width, BOX, labels[node], face, color, size=style.BODY)
    look = {"color": style.MUTED, "linewidth": 1.0}
    look |= {"mutation_scale": 10, "shrinkA": 2, "shrinkB": 2}
    for before, after in edges:
        (x0, y0, w0), (x1, y1, w1) = places[before], places[after]
        if depth[before] - depth[after] > 1:  # over what stands between
            start, end = (x1 + w1 / 2, y1), (x0 + w0 / 2, y0)
            page.arrow(start, end, bend=0.42 / (x1 - x0), **look)
        else:
            page.arrow((x1, y1 + BOX / 2), (x0 + w0, y0 + BOX / 2), **look)
    left, y, width = places[result.grad_fn]
    page.put(x + 0.04, y + BOX / 2, "result")
    page.arrow((x, y + BOX / 2), (left + width, y + BOX / 2), **look)
    page.note(page.width - MARGIN, 0.18, "← the way of the gradients", "right")
    inputs = {node: [labels[a] for a, b in edges if b is node] for node in depth}
    said = (f"{labels[node]} takes {style.some(found)}" for node, found in inputs.items() if found)
    page.say(f"The graph from the result back to the leaves: {style.some(said, MOST_NODES)}")
    return page.figure


def _walk(root) -> tuple[dict, list]:
    """The longest way from the result to each node, and the edges (before, after)."""
    depth, edges, stack = {root: 0}, {}, [root]
    while stack:
        node = stack.pop()
        for before in filter(None, (before for before, _ in node.next_functions)):
            edges[before, node] = None
            if depth.get(before, -1) <= depth[node]:
                depth[before] = depth[node] + 1
                stack.append(before)
        if len(depth) > MOST_NODES:
            raise ValueError(f"the graph has more than {MOST_NODES} nodes")
    return depth, list(edges)


def _label(node, names: Mapping[int, str]) -> str:
    if hasattr(node, "variable"):  # AccumulateGrad
        return names.get(id(node.variable), "leaf")
    return re.sub(r"Backward\d+$", "", node.name())
