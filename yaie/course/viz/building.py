"""What a build makes and what a graph runs: binaries, GPU work, backward."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page, Place

# ---------------------------------------------------------------------------------- binary

MARGIN = 0.14
WHOLE, LEAST = 9.4, 0.5  # inches of all pieces, and of the smallest
TOP, HEIGHT = 0.62, 0.62
CARDS, CARD_HEIGHT = 1.95, 0.5


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
    pieces: Sequence[Piece],
    cards: Mapping[str, str | None],
    title: str = "",
    at: Place | None = None,
) -> Figure:
    """Draw the pieces side by side, the larger the wider, and the cards below.

    Args:
        cards: the name of each card -> the piece that it runs; None if it can run none.
    """
    names = {piece.name for piece in pieces}
    for card, piece in cards.items():
        if piece is not None and piece not in names:
            raise ValueError(f"{card} takes {piece!r}, which is none of {sorted(names)}")
    page = Page(style.WIDTH - 0.3, CARDS + CARD_HEIGHT + MARGIN, at)
    page.put(MARGIN, 0.2, title, weight="bold")
    room = WHOLE - LEAST * len(pieces)
    total = sum(piece.size for piece in pieces)
    x, middle = MARGIN, {}
    for piece in pieces:
        width = LEAST + room * piece.size / total
        color = COLORS[piece.kind]
        page.box(x + 0.01, TOP, width - 0.02, HEIGHT, style.tint(color, 0.5), color)
        middle[piece.name] = x + width / 2
        label = style.shorten(piece.name, max(width - 0.08, 0.3), style.SMALL)
        page.put(x + width / 2, TOP + 0.23, label, style.SMALL, ha="center")
        size = f"{piece.size / 1000:.1f} kB"
        page.note(x + width / 2, TOP + 0.43, size, "center")
        x += width
    step = WHOLE / max(len(cards), 1)
    for i, (card, piece) in enumerate(cards.items()):
        left = MARGIN + i * step + 0.05
        color = style.VERMILION if piece is None else style.MUTED
        page.box(left, CARDS, step - 0.1, CARD_HEIGHT, style.WASH, color, 0.8)
        center = left + step / 2 - 0.05
        says = {True: "runs none of it", False: f"runs {piece}"}[piece is None]
        compiled = any(p.name == piece and p.kind == "PTX" for p in pieces)
        says = "compiles the PTX" if compiled else says
        page.put(center, CARDS + 0.17, card, style.SMALL, ha="center")
        page.put(center, CARDS + 0.36, says, style.SMALL, color, "center")
        if piece is not None:
            page.plot(
                [middle[piece], center],
                [TOP + HEIGHT + 0.03, CARDS - 0.03],
                color=style.MUTED,
                lw=1.0,
            )
    sizes = (f"{piece.name} {piece.size / 1000:.1f} kB" for piece in pieces)
    runs = (f"{card} {piece or 'none of it'}" for card, piece in cards.items())
    page.say(f"{title}: {style.some(sizes)}. What each card runs: {style.some(runs)}")
    return page.figure


# ---------------------------------------------------------------------------------- work

WORK_MARGIN, LEFT = 0.14, 1.5
TITLE, ROW, GAP = 0.34, 0.3, 0.3


@dataclass(frozen=True)
class Work:
    """One piece of work.

    Attributes:
        begins, takes: on the GPU, in microseconds.
        asked: when the CPU asked for it and for how long, in microseconds; None if it was asked
            for together with others.
    """

    begins: float
    takes: float
    asked: tuple[float, float] | None = None


def draw_work(ways: Mapping[str, Sequence[Work]], until: float, at: Place | None = None) -> Figure:
    """Draw a row of the CPU and a row of the GPU for each way, all from 0 to `until` µs."""
    if until <= 0:
        raise ValueError(f"until must be above 0, got {until}")
    height = WORK_MARGIN + len(ways) * (TITLE + 2 * ROW + GAP) + 0.3
    page = Page(style.WIDTH, height, at)
    scale = (page.width - LEFT - 0.3) / until
    for i, (name, works) in enumerate(ways.items()):
        y = WORK_MARGIN + i * (TITLE + 2 * ROW + GAP)
        page.put(WORK_MARGIN, y + 0.14, name, weight="bold")
        shown = [w for w in works if w.begins < until]
        words = f"{len(shown)} kernels; from the first to the last the GPU works {_busy(shown):.0%}"
        page.note(page.width - 0.3, y + 0.14, words, "right")
        page.say(f"{name}, the first {until:g} µs: {words}")
        y += TITLE
        for row, side in enumerate(("CPU asks", "GPU works")):
            page.put(WORK_MARGIN, y + row * ROW + 0.12, side, style.SMALL)
            page.rect(LEFT, y + row * ROW, until * scale, ROW - 0.06, style.WASH)
        asked = dict.fromkeys(w.asked for w in works if w.asked)
        for begin, takes in asked:
            _span(page, LEFT + begin * scale, y, takes * scale, style.SKY, until * scale)
        for work in works:
            x = LEFT + work.begins * scale
            _span(page, x, y + ROW, work.takes * scale, style.GREEN, until * scale)
    y = height - 0.36
    for share in range(5):
        x = LEFT + share / 4 * until * scale
        page.plot([x, x], [WORK_MARGIN + TITLE, y], color=style.FAINT, lw=0.7, zorder=3, alpha=0.6)
        words = f"{share / 4 * until:g}" + (" µs" if share == 4 else "")
        page.note(x, y + 0.16, words, "center")
    return page.figure


def _busy(works: Sequence[Work]) -> float:
    """The share of the time between the first's beginning and the last's end."""
    if not works:
        return 0.0
    busy, end = 0.0, works[0].begins
    for work in sorted(works, key=lambda work: work.begins):  # some run at the same time
        busy += max(work.begins + work.takes - max(end, work.begins), 0.0)
        end = max(end, work.begins + work.takes)
    return busy / (end - min(work.begins for work in works))


def _span(page: Page, x: float, y: float, width: float, color: str, whole: float) -> None:
    width = min(width, LEFT + whole - x)
    if width > 0:
        page.rect(x, y, max(width, 0.012), ROW - 0.06, color, edgecolor=style.PAPER, linewidth=0.3)


# ---------------------------------------------------------------------------------- autograd

HEAD, AUTOGRAD_HEIGHT, AUTOGRAD_ROW = 0.66, 0.34, 0.56
AUTOGRAD_GAP = 0.34  # inches between two columns
MOST_NODES = 40


def draw_autograd(result, leaves: Mapping[str, object], at: Place | None = None) -> Figure:
    """Draw the functions that a backward pass will call, leaves on the left.

    Torch's are called as the operator is that they belong to, "Mul" for MulBackward0.

    Args:
        result: a tensor with a `grad_fn`.
        leaves: name -> the leaf tensor; others are called "leaf".
    """
    if result.grad_fn is None:
        raise ValueError("result must have a grad_fn: nothing before it requires a gradient")
    names = {id(tensor): name for name, tensor in leaves.items()}
    order, edges, stack = [], [], [result.grad_fn]
    while stack:
        node = stack.pop()
        if node in order:
            continue
        order.append(node)
        if len(order) > MOST_NODES:
            raise ValueError(f"the graph has more than {MOST_NODES} nodes")
        for before, _ in node.next_functions:
            if before is not None:
                edges.append((before, node))
                stack.append(before)
    depth = _depths(result.grad_fn)
    deepest = max(depth.values())
    columns = defaultdict(list)
    for node in order:
        columns[deepest - depth[node]].append(node)
    for nodes in columns.values():
        nodes.sort(key=lambda node: hasattr(node, "variable"))  # leaves below
    labels = {node: _label(node, names) for node in order}
    widths = {
        column: max(style.text_width(labels[node]) for node in nodes) + 0.2
        for column, nodes in columns.items()
    }
    lefts, x = {}, MARGIN
    for column in range(deepest + 1):
        lefts[column] = x
        x += widths[column] + AUTOGRAD_GAP
    width = x + style.text_width("result") + 0.1
    rows = max(map(len, columns.values()))
    page = Page(width, HEAD + 0.05 + rows * AUTOGRAD_ROW, at)
    places, columns_of = {}, {node: deepest - depth[node] for node in order}
    for column, nodes in columns.items():
        top = HEAD + (rows - len(nodes)) * AUTOGRAD_ROW / 2
        for i, node in enumerate(nodes):
            places[node] = (lefts[column], top + i * AUTOGRAD_ROW, widths[column])
    for node, (left, y, node_width) in places.items():
        leaf = hasattr(node, "variable")
        color = style.GREEN if leaf else style.BLUE if _is_torchs(node) else style.ORANGE
        page.cell(
            left,
            y,
            node_width,
            AUTOGRAD_HEIGHT,
            labels[node],
            style.tint(color, 0.35),
            color,
            size=style.BODY,
        )
    for before, after in edges:
        (x0, y0, w0), (x1, y1, w1) = places[before], places[after]
        if columns_of[after] - columns_of[before] > 1:  # over what stands between
            _arrow(page, x1 + w1 / 2, y1, x0 + w0 / 2, y0, bend=0.42 / (x1 - x0))
        else:
            _arrow(page, x1, y1 + AUTOGRAD_HEIGHT / 2, x0 + w0, y0 + AUTOGRAD_HEIGHT / 2)
    left, y, node_width = places[result.grad_fn]
    end = left + node_width + AUTOGRAD_GAP
    page.put(end + 0.04, y + AUTOGRAD_HEIGHT / 2, "result")
    _arrow(page, end, y + AUTOGRAD_HEIGHT / 2, left + node_width, y + AUTOGRAD_HEIGHT / 2)
    words = "← the way of the gradients"
    page.note(width - MARGIN, 0.18, words, "right")
    inputs = {node: [labels[a] for a, b in edges if b is node] for node in order}
    said = (f"{labels[node]} takes {style.some(found)}" for node, found in inputs.items() if found)
    page.say(f"The graph from the result back to the leaves: {style.some(said, MOST_NODES)}")
    return page.figure


def _depths(root) -> dict:
    """The longest way from the result to each node."""
    depth, stack = {root: 0}, [root]
    while stack:
        node = stack.pop()
        for before, _ in node.next_functions:
            if before is not None and depth.get(before, -1) < depth[node] + 1:
                depth[before] = depth[node] + 1
                stack.append(before)
    return depth


def _label(node, names: Mapping[int, str]) -> str:
    if hasattr(node, "variable"):  # AccumulateGrad
        return names.get(id(node.variable), "leaf")
    return re.sub(r"Backward\d+$", "", node.name())


def _is_torchs(node) -> bool:
    """Whether a function comes with torch: those have a number behind their names."""
    return node.name()[-1].isdigit()


def _arrow(page: Page, x0: float, y0: float, x1: float, y1: float, bend: float = 0.0) -> None:
    page.ax.annotate(
        "",
        (x1 + 0.02, y1 - 0.02 * bool(bend)),
        (x0 - 0.02, y0 - 0.02 * bool(bend)),
        arrowprops={
            "arrowstyle": "-|>",
            "color": style.MUTED,
            "lw": 1.0,
            "shrinkA": 0,
            "shrinkB": 0,
            "connectionstyle": f"arc3,rad={bend}",
        },
    )
