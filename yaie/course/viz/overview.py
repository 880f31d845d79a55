"""The whole course in one picture: its map, and the strip of the README."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from yaie.course.viz import style
from yaie.course.viz.attention import draw_attention
from yaie.course.viz.blocks import PoolState, draw_blocks
from yaie.course.viz.film import compose
from yaie.course.viz.page import Page, Place
from yaie.course.viz.schedule import Step, draw_schedule
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
    ("notebooks 07 to 09", style.GREEN, "one pass over memory"),
    ("notebooks 10 to 12", style.ORANGE, "Triton"),
    ("notebooks 13 to 21", style.VERMILION, "CUDA C++"),
    ("notebooks 22 to 24", style.PINK, "the engine"),
)


@dataclass(frozen=True)
class Part:
    """A part of the engine: what it does, in two lines, and the notebooks that build it."""

    name: str
    does: tuple[str, ...]
    built_by: str
    column: int
    row: int
    columns: int = 1

    @property
    def notebooks(self) -> tuple[int, ...]:
        return _numbers(self.built_by)

    @property
    def x(self) -> float:
        return MARGIN + self.column * (COLUMN + GAP)

    @property
    def y(self) -> float:
        return ROWS[self.row]

    @property
    def width(self) -> float:
        return self.columns * COLUMN + (self.columns - 1) * GAP

    @property
    def height(self) -> float:
        return HEIGHTS[self.row]


PARTS = {
    "tokenizer": Part("Tokenizer", ("text to token ids,", "ready-made"), "", 0, 0),
    "scheduler": Part("Scheduler", ("who is computed", "in this step"), "notebook 06", 1, 0),
    "batch": Part("Batch", ("positions, slots,", "block tables"), "notebooks 03, 06", 2, 0),
    "model": Part("Model", ("tokens to logits,", "layer by layer"), "notebook 01", 3, 0),
    "sampler": Part("Sampler", ("logits to", "the next token"), "notebooks 05, 20", 4, 0),
    "stream": Part("Stream", ("token ids to text,", "piece by piece"), "notebook 23", 5, 0),
    "radix": Part("Radix cache", ("prefixes already", "computed"), "notebooks 02, 04, 19", 1, 1),
    "blocks": Part("KV blocks", ("keys and values", "in pages"), "notebooks 03, 16", 2, 1),
    "attention": Part(
        "Attention", ("each token reads", "the ones before"), "notebooks 01, 07, 08", 3, 1
    ),
    "layers": Part(
        "Other layers", ("norms, rotary,", "matrix products"), "notebooks 01, 10, 11", 4, 1
    ),
    "backends": Part(
        "Kernels",
        ("the same operators in Python, in Triton and in CUDA C++, on a GPU or without one",),
        "notebooks 09, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22",
        1,
        2,
        4,
    ),
    "next": Part("Where next", ("several GPUs",), "notebook 24", 5, 2),
}


def draw_course_map(notebook: int | None = None, at: Place | None = None) -> Figure:
    """Draw the way from a prompt to its answer, each part with the notebooks that build it.

    Args:
        notebook: mark the parts that this notebook builds.
    """
    last = _numbers(COURSE[-1][0])[-1]
    if notebook is not None and not 0 <= notebook <= last:
        raise ValueError(f"notebook must be between 0 and {last}, got {notebook}")
    page = Page(style.WIDTH, 5.0, at)
    _draw_arrows(page.ax)
    _draw_bubble(page.ax, PARTS["tokenizer"], "your question")
    _draw_bubble(page.ax, PARTS["stream"], "the answer")
    for part in PARTS.values():
        _draw_part(page.ax, part, notebook)
    _draw_key(page.ax)
    way = " → ".join(part.name for part in PARTS.values() if part.row == 0)
    page.say(f"From a question to its answer: {way}, and from the sampler back to the scheduler")
    numbers = (
        f"{part.name} {style.some((f'{n:02}' for n in part.notebooks), 99)}"
        for part in PARTS.values()
        if part.notebooks
    )
    page.say(f"Notebooks that build each part, and those below: {'; '.join(numbers)}")
    if notebook is not None:
        marked = (part.name for part in PARTS.values() if notebook in part.notebooks)
        page.say(f"Notebook {notebook:02} builds: {style.some(marked) or 'none of them'}")
    return page.figure


def _draw_part(ax: Axes, part: Part, notebook: int | None) -> None:
    marked = notebook in part.notebooks
    color = notebook_color(notebook) if marked else "#8d949f"
    face = style.tint(color, 0.16) if marked else style.WASH if part.notebooks else style.PAPER
    ax.box(
        part.x, part.y, part.width, part.height, face, color, 2.2 if marked else 1.0, 0.07, zorder=3
    )
    x, y = part.x + 0.1, part.y + 0.17
    ax.put(x, y, part.name, 9.5, weight="bold", zorder=4)
    if len(part.does) == 1 and part.columns > 1:
        after = x + style.text_width(part.name, 9.5, "bold") + 0.15
        ax.note(after, y, part.does[0], zorder=4)
    else:
        for line, text in enumerate(part.does):
            ax.note(x, y + 0.2 + 0.15 * line, text, zorder=4)
    for i, number in enumerate(part.notebooks):
        _draw_badge(ax, x + 0.3 * i, part.y + part.height - 0.25, number)


def notebook_color(number: int) -> str:
    """The color of the part of the course that a notebook belongs to."""
    parts = ((_numbers(words), color) for words, color, _ in COURSE)
    return next(color for found, color in parts if found[0] <= number <= found[-1])


def _numbers(words: str) -> tuple[int, ...]:
    """The numbers in "notebooks 03, 06", a form in which renumbering finds them."""
    return tuple(map(int, re.findall(r"\d\d", words)))


def _draw_badge(ax: Axes, x: float, y: float, number: int) -> None:
    ax.box(x, y, 0.26, 0.17, notebook_color(number), radius=0.05, zorder=4)
    ax.put(x + 0.13, y + 0.087, f"{number:02}", 7, style.PAPER, "center", weight="bold", zorder=5)


def _draw_bubble(ax: Axes, part: Part, words: str) -> None:
    ax.box(part.x, 0.16, part.width, 0.34, style.tint(style.YELLOW, 0.3), radius=0.16)
    ax.put(part.x + part.width / 2, 0.335, words, ha="center")


def _arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    color: str = style.MUTED,
    both: bool = False,
) -> None:
    ax.add_artist(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="<|-|>" if both else "-|>",
            mutation_scale=10,
            shrinkA=1,
            shrinkB=1,
            color=color,
            linewidth=1.4,
            zorder=2,
        )
    )


def _draw_arrows(ax: Axes) -> None:
    way = [part for part in PARTS.values() if part.row == 0]
    for left, right in pairwise(way):
        y = left.y + left.height / 2
        _arrow(ax, (left.x + left.width, y), (right.x, y), style.INK)
    first, last = way[0], way[-1]
    _arrow(ax, (first.x + first.width / 2, 0.5), (first.x + first.width / 2, first.y), style.INK)
    _arrow(ax, (last.x + last.width / 2, last.y), (last.x + last.width / 2, 0.5), style.INK)
    for upper, lower in (("scheduler", "radix"), ("batch", "blocks"), ("model", "attention")):
        a, b = PARTS[upper], PARTS[lower]
        x = a.x + a.width / 2
        _arrow(ax, (x, a.y + a.height), (x, b.y), both=upper != "batch")
    model, layers = PARTS["model"], PARTS["layers"]
    _arrow(ax, (model.x + model.width - 0.1, model.y + model.height), (layers.x + 0.2, layers.y))
    for left, right in (("radix", "blocks"), ("blocks", "attention")):
        a, b = PARTS[left], PARTS[right]
        y = a.y + a.height / 2
        _arrow(ax, (a.x + a.width, y), (b.x, y), both=left == "blocks")
    for name in ("blocks", "attention", "layers"):
        part, kernels = PARTS[name], PARTS["backends"]
        x = part.x + part.width / 2
        _arrow(ax, (x, part.y + part.height), (x, kernels.y))
    _draw_loop(ax, PARTS["sampler"], PARTS["scheduler"])


def _draw_loop(ax: Axes, sampler: Part, scheduler: Part) -> None:
    """The way back: a sampled token is the next step's input."""
    x0, x1, y = sampler.x + sampler.width / 2, scheduler.x + scheduler.width / 2, 0.42
    ax.plot([x0, x0, x1], [sampler.y, y, y], color=style.INK, lw=1.4, zorder=2)
    _arrow(ax, (x1, y), (x1, scheduler.y), style.INK)
    words = "the new token joins the next step"
    ax.note((x0 + x1) / 2, y - 0.12, words, "center")


def _draw_key(ax: Axes) -> None:
    x, y = MARGIN, 4.78
    ax.note(x, y, "notebooks:")
    x += style.text_width("notebooks:", style.SMALL) + 0.14
    for notebooks, color, title in COURSE:
        words = "–".join(re.findall(r"\d\d", notebooks))
        width = style.text_width(words, 7, "bold") + 0.12
        ax.box(x, y - 0.085, width, 0.17, color, radius=0.05)
        ax.put(x + width / 2, y + 0.002, words, 7, style.PAPER, "center", weight="bold")
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
