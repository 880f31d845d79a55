"""The graph that autograd keeps: from the leaves to a result, walked from its `grad_fn`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from matplotlib.figure import Figure

from yaie.viz import style

MARGIN = 0.14
HEIGHT, ROW = 0.34, 0.56
GAP = 0.5  # inches between two columns
MOST_NODES = 40


def draw_autograd(result, leaves: Mapping[str, object], at: style.Place | None = None) -> Figure:
    """Draw the functions that a backward pass will call, leaves on the left.

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
    labels = {node: _label(node, names) for node in order}
    widths = {
        column: max(style.text_width(labels[node]) for node in nodes) + 0.24
        for column, nodes in columns.items()
    }
    lefts, x = {}, MARGIN
    for column in range(deepest + 1):
        lefts[column] = x
        x += widths[column] + GAP
    width = x + style.text_width("result") + 0.1
    rows = max(map(len, columns.values()))
    page = style.Page(width, 0.45 + rows * ROW, at)
    places = {}
    for column, nodes in columns.items():
        top = 0.4 + (rows - len(nodes)) * ROW / 2
        for i, node in enumerate(nodes):
            places[node] = (lefts[column], top + i * ROW, widths[column])
    for node, (left, y, node_width) in places.items():
        leaf = hasattr(node, "variable")
        own = "Backward" in labels[node] and labels[node][-1] not in "0123456789"
        color = style.GREEN if leaf else style.ORANGE if own else style.BLUE
        style.box(page.ax, left, y, node_width, HEIGHT, style.tint(color, 0.35), color)
        style.put(page.ax, left + node_width / 2, y + HEIGHT / 2, labels[node], ha="center")
    for before, after in edges:
        (x0, y0, w0), (x1, y1, _) = places[before], places[after]
        _arrow(page, x1, y1 + HEIGHT / 2, x0 + w0, y0 + HEIGHT / 2)
    left, y, node_width = places[result.grad_fn]
    end = left + node_width + GAP
    style.put(page.ax, end + 0.04, y + HEIGHT / 2, "result")
    _arrow(page, end, y + HEIGHT / 2, left + node_width, y + HEIGHT / 2)
    words = "← the way of the gradients"
    style.put(page.ax, width - MARGIN, 0.18, words, style.SMALL, style.MUTED, "right")
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
    return node.name()


def _arrow(page: style.Page, x0: float, y0: float, x1: float, y1: float) -> None:
    page.ax.annotate(
        "", (x1 + 0.03, y1), (x0 - 0.03, y0),
        arrowprops={"arrowstyle": "-|>", "color": style.MUTED, "lw": 1.0},
    )  # fmt: skip
