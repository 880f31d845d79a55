"""The way of a prompt through the engine, and the notebooks that build each part of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from yaie.course.viz import style

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


def draw_course_map(notebook: int | None = None, at: style.Place | None = None) -> Figure:
    """Draw the way from a prompt to its answer, each part with the notebooks that build it.

    Args:
        notebook: mark the parts that this notebook builds.
    """
    last = _numbers(COURSE[-1][0])[-1]
    if notebook is not None and not 0 <= notebook <= last:
        raise ValueError(f"notebook must be between 0 and {last}, got {notebook}")
    page = style.Page(style.WIDTH, 5.0, at)
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
    style.box(
        ax,
        part.x,
        part.y,
        part.width,
        part.height,
        face,
        color,
        2.2 if marked else 1.0,
        0.07,
        zorder=3,
    )
    x, y = part.x + 0.1, part.y + 0.17
    style.put(ax, x, y, part.name, 9.5, weight="bold", zorder=4)
    if len(part.does) == 1 and part.columns > 1:
        after = x + style.text_width(part.name, 9.5, "bold") + 0.15
        style.put(ax, after, y, part.does[0], style.SMALL, style.MUTED, zorder=4)
    else:
        for line, text in enumerate(part.does):
            style.put(ax, x, y + 0.2 + 0.15 * line, text, style.SMALL, style.MUTED, zorder=4)
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
    style.box(ax, x, y, 0.26, 0.17, notebook_color(number), radius=0.05, zorder=4)
    style.put(
        ax, x + 0.13, y + 0.087, f"{number:02}", 7, style.PAPER, "center", weight="bold", zorder=5
    )


def _draw_bubble(ax: Axes, part: Part, words: str) -> None:
    style.box(ax, part.x, 0.16, part.width, 0.34, style.tint(style.YELLOW, 0.3), radius=0.16)
    style.put(ax, part.x + part.width / 2, 0.335, words, ha="center")


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
    style.put(ax, (x0 + x1) / 2, y - 0.12, words, style.SMALL, style.MUTED, "center")


def _draw_key(ax: Axes) -> None:
    x, y = MARGIN, 4.78
    style.put(ax, x, y, "notebooks:", style.SMALL, style.MUTED)
    x += style.text_width("notebooks:", style.SMALL) + 0.14
    for notebooks, color, title in COURSE:
        words = "–".join(re.findall(r"\d\d", notebooks))
        width = style.text_width(words, 7, "bold") + 0.12
        style.box(ax, x, y - 0.085, width, 0.17, color, radius=0.05)
        style.put(ax, x + width / 2, y + 0.002, words, 7, style.PAPER, "center", weight="bold")
        style.put(ax, x + width + 0.06, y, title, style.SMALL, style.MUTED)
        x += width + 0.06 + style.text_width(title, style.SMALL) + 0.2
