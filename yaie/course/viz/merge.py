"""Partial results and how they are merged: a tree with the log-sum-exp at every node."""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.online import number

MARGIN = 0.14
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


def draw_merge(state: MergeNode, at: style.Place | None = None) -> Figure:
    """Draw a tree of merges, leaves at the top, with the share each side has in its parent."""
    leaves = count_leaves(state)
    width = 2 * MARGIN + leaves * BOX[0] + (leaves - 1) * GAP
    deep = depth(state)
    page = style.Page(width, 2 * MARGIN + deep * LEVEL + BOX[1], at)
    _draw(page, state, MARGIN, deep)
    results = [f"{leaf.keys} {number(leaf.lse)}" for leaf in _leaves(state)]
    page.say(
        f"A tree of merges, {deep} deep, of {style.count(leaves, 'partial result')}, with their "
        f"lse: {style.some(results)}; in the end lse {number(state.lse)}, out {number(state.out)}"
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


def _draw(page: style.Page, node: MergeNode, left: float, level: int) -> tuple[float, float]:
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
        style.box(ax, at_x - 0.2, at_y - 0.09, 0.4, 0.18, style.PAPER, radius=0.04, zorder=1)
        style.put(ax, at_x, at_y, f"{share:.0%}", style.SMALL, style.VERMILION, "center", zorder=2)
    color = style.GREEN if node.children else style.BLUE
    face = style.tint(color, 0.18)
    style.box(ax, middle - BOX[0] / 2, top, *BOX, face, style.tint(color, 0.6))
    words = style.shorten(node.keys, BOX[0] - 0.1, style.SMALL)
    style.put(ax, middle, top + 0.13, words, style.SMALL, style.MUTED, "center")
    style.put(ax, middle, top + 0.31, f"lse {number(node.lse)}", style.BODY, ha="center")
    style.put(ax, middle, top + 0.49, f"out {number(node.out)}", style.BODY, ha="center")
    return middle, top + BOX[1]
