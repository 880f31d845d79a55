"""The graph that autograd keeps: from the leaves to a result, walked from its `grad_fn`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from matplotlib.figure import Figure

from yaie.course.viz import style

MARGIN = 0.14
HEAD, HEIGHT, ROW = 0.66, 0.34, 0.56
GAP = 0.34  # inches between two columns
MOST_NODES = 40


def draw_autograd(result, leaves: Mapping[str, object], at: style.Place | None = None) -> Figure:
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
        x += widths[column] + GAP
    width = x + style.text_width("result") + 0.1
    rows = max(map(len, columns.values()))
    page = style.Page(width, HEAD + 0.05 + rows * ROW, at)
    places, columns_of = {}, {node: deepest - depth[node] for node in order}
    for column, nodes in columns.items():
        top = HEAD + (rows - len(nodes)) * ROW / 2
        for i, node in enumerate(nodes):
            places[node] = (lefts[column], top + i * ROW, widths[column])
    for node, (left, y, node_width) in places.items():
        leaf = hasattr(node, "variable")
        color = style.GREEN if leaf else style.BLUE if _is_torchs(node) else style.ORANGE
        style.box(page.ax, left, y, node_width, HEIGHT, style.tint(color, 0.35), color)
        style.put(page.ax, left + node_width / 2, y + HEIGHT / 2, labels[node], ha="center")
    for before, after in edges:
        (x0, y0, w0), (x1, y1, w1) = places[before], places[after]
        if columns_of[after] - columns_of[before] > 1:  # over what stands between
            _arrow(page, x1 + w1 / 2, y1, x0 + w0 / 2, y0, bend=0.42 / (x1 - x0))
        else:
            _arrow(page, x1, y1 + HEIGHT / 2, x0 + w0, y0 + HEIGHT / 2)
    left, y, node_width = places[result.grad_fn]
    end = left + node_width + GAP
    style.put(page.ax, end + 0.04, y + HEIGHT / 2, "result")
    _arrow(page, end, y + HEIGHT / 2, left + node_width, y + HEIGHT / 2)
    words = "← the way of the gradients"
    style.put(page.ax, width - MARGIN, 0.18, words, style.SMALL, style.MUTED, "right")
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


def _arrow(page: style.Page, x0: float, y0: float, x1: float, y1: float, bend: float = 0.0) -> None:
    page.ax.annotate(
        "", (x1 + 0.02, y1 - 0.02 * bool(bend)), (x0 - 0.02, y0 - 0.02 * bool(bend)),
        arrowprops={"arrowstyle": "-|>", "color": style.MUTED, "lw": 1.0, "shrinkA": 0,
                    "shrinkB": 0, "connectionstyle": f"arc3,rad={bend}"},
    )  # fmt: skip
