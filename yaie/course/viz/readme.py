"""The strip of pictures at the top of the README: what a learner will see."""

from __future__ import annotations

import math
from functools import partial

from matplotlib.figure import Figure

from yaie.course.viz.attention import draw_attention
from yaie.course.viz.blocks import PoolState, draw_blocks
from yaie.course.viz.film import compose
from yaie.course.viz.schedule import Step, draw_schedule
from yaie.course.viz.tree import draw_tree
from yaie.course.viz.tree_state import TreeNode, TreeState


def draw_readme_strip() -> Figure:
    """Draw four pictures of the course side by side, from small states made by hand."""
    return compose(
        [
            partial(draw_tree, _tree(), width=6.4),
            partial(draw_attention, _attention(), keys=WORDS, cell=0.26),
            partial(draw_blocks, *_blocks()),
            partial(draw_schedule, _schedule(), token_budget=8),
        ],
        [
            ("1", "requests that begin alike share a path"),
            ("2", "each token reads the ones before"),
            ("3", "two chats share blocks of memory"),
            ("4", "a scheduler fills every step"),
        ],
    )


def _tree() -> TreeState:
    system, question = tuple(range(12)), tuple(range(12, 20))
    nodes = (
        TreeNode((), "", None),
        TreeNode(system, "You are a helpful assistant.", 0, (0, 1, 2), 2, 3, ("A", "B", "C")),
        TreeNode(question, "What is the capital of", 1, (3, 4), 1, 2, ("A", "B")),
        TreeNode((20, 21, 22, 23), "France?", 2, (5,), 1, 1, ("A",)),
        TreeNode((24, 25, 26, 27), "Peru?", 2, (6,), 0, 2, ("B",)),
        TreeNode(tuple(range(28, 36)), "Write a poem about trees.", 1, (7, 8), 1, 3, ("C",)),
    )
    return TreeState(nodes, block_size=4, matched=system + question)


WORDS = ("The", " cat", " sat", " on", " the", " mat")


def _attention() -> list[list[float]]:
    scores = [
        [1.0],
        [1.2, 0.9],
        [0.2, 2.4, 0.6],
        [0.1, 0.8, 2.2, 0.5],
        [1.4, 0.3, 0.4, 1.9, 0.2],
        [0.1, 2.1, 1.0, 0.7, 1.6, 0.6],
    ]
    rows = []
    for row in scores:
        weights = [math.exp(1.2 * score) for score in row]
        rows.append([w / sum(weights) for w in weights] + [0.0] * (len(scores) - len(row)))
    return rows


def _blocks() -> tuple[PoolState, PoolState]:
    before = PoolState(
        4,
        (2, 2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0),
        {"chat A": (0, 1, 2, 3), "chat B": (0, 1, 2)},
        {"chat A": 15, "chat B": 11},
    )
    after = PoolState(
        4,
        (2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0),
        {"chat A": (0, 1, 2, 3), "chat B": (0, 1, 4, 5)},
        {"chat A": 16, "chat B": 14},
    )
    return after, before


def _schedule() -> list[Step]:
    return [
        Step((("A", "prefill", 8),)),
        Step((("A", "decode", 1), ("B", "prefill", 7))),
        Step((("A", "decode", 1), ("B", "decode", 1), ("C", "prefill", 6))),
        Step((("A", "decode", 1), ("B", "decode", 1), ("C", "prefill", 5)), finished=("A",)),
        Step((("B", "decode", 1), ("C", "decode", 1), ("D", "prefill", 6))),
        Step((("B", "decode", 1), ("C", "decode", 1), ("D", "decode", 1)), finished=("B",)),
        Step((("C", "decode", 1), ("D", "decode", 1))),
        Step((("C", "decode", 1), ("D", "decode", 1)), finished=("C", "D")),
    ]
