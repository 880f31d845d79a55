"""The whole course in one picture: its map, and the strip of the README."""

import math
import re
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.attention import draw_attention
from yaie.course.viz.blocks import PoolState, draw_blocks
from yaie.course.viz.film import compose
from yaie.course.viz.page import Page, Sheet
from yaie.course.viz.schedule import StepRecord, draw_schedule
from yaie.course.viz.tree import draw_tree
from yaie.course.viz.tree_state import TreeNode, TreeState

# ---------------------------------------------------------------------------------- course map

MARGIN = 0.14
COLUMN, GAP = 1.33, 0.348
ROWS = (0.86, 2.3, 3.72)
HEIGHTS = (0.98, 0.98, 0.72)

# The parts of the course: their notebooks, color, title.
COURSE = (
    ("notebook 00", style.INK, "start"),
    ("notebooks 01 to 06", style.BLUE, "memory of an engine"),
    ("notebooks 07 to 10", style.GREEN, "one pass over memory"),
    ("notebooks 11 to 13", style.ORANGE, "Triton"),
    ("notebooks 14 to 23", style.VERMILION, "CUDA C++"),
    ("notebooks 24 to 26", style.SKY, "Hopper"),
    ("notebooks 27 to 29", style.PINK, "the engine"),
)


@dataclass(frozen=True)
class Part:
    """A part of the engine: what it does, in two lines, the notebooks that build it, its place."""

    name: str
    does: tuple[str, ...]
    built_by: str
    column: int
    row: int
    columns: int = 1

    @property
    def notebooks(self) -> tuple[int, ...]:
        return _numbers(self.built_by)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """A place on the page: 0 and 0 are the part's top left corner, 1 and 1 its bottom right."""
        width = self.columns * (COLUMN + GAP) - GAP
        left = MARGIN + self.column * (COLUMN + GAP)
        return left + x * width, ROWS[self.row] + y * HEIGHTS[self.row]


PARTS = {
    "tokenizer": Part("Tokenizer", ("text to token ids,", "ready-made"), "", 0, 0),
    "scheduler": Part("Scheduler", ("which requests run", "in this step"), "notebook 06", 1, 0),
    "batch": Part("Batch", ("positions, slots,", "block tables"), "notebooks 03, 06", 2, 0),
    "model": Part("Model", ("tokens to logits,", "layer by layer"), "notebook 01", 3, 0),
    "sampler": Part("Sampler", ("logits to", "the next token"), "notebooks 05, 21", 4, 0),
    "stream": Part("Stream", ("token ids to text,", "piece by piece"), "notebook 28", 5, 0),
    "radix": Part("Radix cache", ("prefixes already", "computed"), "notebooks 02, 04, 20", 1, 1),
    "blocks": Part("KV blocks", ("keys and values", "in pages"), "notebooks 03, 17", 2, 1),
    "attention": Part(
        "Attention", ("each token reads", "the ones before"), "notebooks 01, 07, 08", 3, 1
    ),
    "layers": Part(
        "Other layers", ("norms, rotary,", "matrix products"), "notebooks 01, 10, 11, 12", 4, 1
    ),
    "backends": Part(
        "Kernels",
        ("the same operators in Python, in Triton and in CUDA C++, on a GPU or without one",),
        "notebooks 09, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 24, 25, 26, 27",
        1,
        2,
        4,
    ),
    "next": Part("Where next", ("several GPUs",), "notebook 29", 5, 2),
}


def draw_course_map() -> Figure:
    """Draw the way from a prompt to its answer, each part with the notebooks that build it."""
    page = Page(style.WIDTH, 5.0)
    _draw_arrows(page.ax)
    _draw_bubble(page.ax, PARTS["tokenizer"], "your question")
    _draw_bubble(page.ax, PARTS["stream"], "the answer")
    for part in PARTS.values():
        _draw_part(page.ax, part)
    _draw_key(page.ax)
    way = " → ".join(part.name for part in PARTS.values() if part.row == 0)
    page.say(f"From a question to its answer: {way}, and from the sampler back to the scheduler")
    numbers = (
        f"{part.name} {style.some((f'{n:02}' for n in part.notebooks), 99)}"
        for part in PARTS.values()
        if part.notebooks
    )
    page.say(f"Notebooks that build each part, and those below: {'; '.join(numbers)}")
    return page.figure


def _draw_part(ax: Sheet, part: Part) -> None:
    face = style.WASH if part.notebooks else style.PAPER
    (left, top), (right, bottom) = part.at(0, 0), part.at(1, 1)
    ax.box(left, top, right - left, bottom - top, face, "#8d949f", radius=0.07, zorder=3)
    x, y = left + 0.1, top + 0.17
    ax.put(x, y, part.name, 9.5, weight="bold", zorder=4)
    if part.columns > 1:
        ax.note(x + style.text_width(part.name, 9.5, "bold") + 0.15, y, part.does[0], zorder=4)
    else:
        for line, text in enumerate(part.does):
            ax.note(x, y + 0.2 + 0.15 * line, text, zorder=4)
    for i, number in enumerate(part.notebooks):
        face = notebook_color(number)
        look = {"size": 7, "color": style.ink_on(face), "weight": "bold", "zorder": 5}
        ax.box(x + 0.3 * i, bottom - 0.25, 0.26, 0.17, face, zorder=4)
        ax.put(x + 0.3 * i + 0.13, bottom - 0.163, f"{number:02}", ha="center", **look)


def notebook_color(number: int) -> str:
    """The color of the part of the course that a notebook belongs to."""
    parts = ((_numbers(words), color) for words, color, _ in COURSE)
    return next(color for found, color in parts if found[0] <= number <= found[-1])


def _numbers(words: str) -> tuple[int, ...]:
    """The numbers in "notebooks 03, 06", a form in which renumbering finds them."""
    return tuple(map(int, re.findall(r"\d\d", words)))


def _draw_bubble(ax: Sheet, part: Part, words: str) -> None:
    (left, _), (right, _) = part.at(0, 0), part.at(1, 0)
    ax.box(left, 0.16, right - left, 0.34, style.tint(style.YELLOW, 0.3), radius=0.16)
    ax.put((left + right) / 2, 0.335, words, ha="center")


def _draw_arrows(ax: Sheet) -> None:
    look = {"mutation_scale": 10, "shrinkA": 1, "shrinkB": 1, "linewidth": 1.4, "zorder": 2}
    both = {"arrowstyle": "<|-|>", **look}
    way = [part for part in PARTS.values() if part.row == 0]
    for left, right in pairwise(way):
        ax.arrow(left.at(1, 0.5), right.at(0, 0.5), **look)
    top, end = way[0].at(0.5, 0), way[-1].at(0.5, 0)
    ax.arrow((top[0], 0.5), top, **look)
    ax.arrow(end, (end[0], 0.5), **look)
    for upper, lower in (("scheduler", "radix"), ("batch", "blocks"), ("model", "attention")):
        ends = PARTS[upper].at(0.5, 1), PARTS[lower].at(0.5, 0)
        ax.arrow(*ends, style.MUTED, **(look if upper == "batch" else both))
    ax.arrow(PARTS["model"].at(0.925, 1), PARTS["layers"].at(0.15, 0), style.MUTED, **look)
    radix, blocks, attention = PARTS["radix"], PARTS["blocks"], PARTS["attention"]
    ax.arrow(radix.at(1, 0.5), blocks.at(0, 0.5), style.MUTED, **look)
    ax.arrow(blocks.at(1, 0.5), attention.at(0, 0.5), style.MUTED, **both)
    for part in (blocks, attention, PARTS["layers"]):
        x, y = part.at(0.5, 1)
        ax.arrow((x, y), (x, PARTS["backends"].at(0, 0)[1]), style.MUTED, **look)
    # The way back: a sampled token is the next step's input.
    (x0, y0), (x1, y1) = PARTS["sampler"].at(0.5, 0), PARTS["scheduler"].at(0.5, 0)
    ax.plot([x0, x0, x1], [y0, 0.42, 0.42], color=style.INK, lw=1.4, zorder=2)
    ax.arrow((x1, 0.42), (x1, y1), **look)
    ax.note((x0 + x1) / 2, 0.3, "the new token joins the next step", "center")


def _draw_key(ax: Sheet) -> None:
    x, y = MARGIN, 4.78
    ax.note(x, y, "notebooks:")
    x += style.text_width("notebooks:", style.SMALL) + 0.14
    for notebooks, color, title in COURSE:
        words = "–".join(re.findall(r"\d\d", notebooks))
        width = style.text_width(words, 7, "bold") + 0.12
        look = {"size": 7, "color": style.ink_on(color), "weight": "bold"}
        ax.cell(x, y - 0.085, width, 0.17, words, color, **look)
        ax.note(x + width + 0.06, y, title)
        x += width + 0.06 + style.text_width(title, style.SMALL) + 0.2


# ---------------------------------------------------------------------------------- readme


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


def _schedule() -> list[StepRecord]:
    return [
        StepRecord((("A", "prefill", 8),)),
        StepRecord((("A", "decode", 1), ("B", "prefill", 7))),
        StepRecord((("A", "decode", 1), ("B", "decode", 1), ("C", "prefill", 6))),
        StepRecord((("A", "decode", 1), ("B", "decode", 1), ("C", "prefill", 5)), finished=("A",)),
        StepRecord((("B", "decode", 1), ("C", "decode", 1), ("D", "prefill", 6))),
        StepRecord((("B", "decode", 1), ("C", "decode", 1), ("D", "decode", 1)), finished=("B",)),
        StepRecord((("C", "decode", 1), ("D", "decode", 1))),
        StepRecord((("C", "decode", 1), ("D", "decode", 1)), finished=("C", "D")),
    ]
