"""From recorded states to a film strip that a page can show, and to a slider that a reader moves.

A drawing function here is any `draw(state) -> Figure` of `yaie.course.viz`, or one that calls such
a one. If it also takes `previous`, it is given the state before, so that it can mark what changed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.page import Page, size_of
from yaie.course.viz.style import INK, PAPER, SMALL, WIDTH

GAP = 0.4  # inches between panels
TITLE_HEIGHT = 0.34

Draw = Callable[..., Figure]


def draw_frame(states: Sequence[Any], draw: Draw, index: int) -> Figure:
    """Draw `states[index]`, compared with the state before if `draw` wants to know it."""
    if "previous" in signature(draw).parameters:
        return draw(states[index], previous=states[index - 1] if index else None)
    return draw(states[index])


def film_strip(
    states: Sequence[Any],
    draw: Draw,
    titles: Sequence[str] | None = None,
    frames: Sequence[int] | None = None,
) -> Figure:
    """Draw several states side by side, as many in a row as fit.

    Args:
        states: recorded states, oldest first.
        draw: the picture of one state.
        titles: one for each state.
        frames: which states to show; all by default.
    """
    check_states(states, titles)
    chosen = list(range(len(states))) if frames is None else list(frames)
    if not chosen or any(not 0 <= index < len(states) for index in chosen):
        raise ValueError(f"frames must be one or more of 0 to {len(states) - 1}, got {chosen}")
    panels = [partial(draw_frame, states, draw, index) for index in chosen]
    if titles is None:
        return compose(panels)
    return compose(panels, [(str(i + 1), titles[i]) for i in chosen])


def compose(panels: Sequence[Draw], titles: Sequence[tuple[str, str]] | None = None) -> Figure:
    """Put pictures of any kind on one figure, which is wider than a page only if one of them is.

    Args:
        panels: functions `panel() -> Figure`.
        titles: a number and a title for each panel.
    """
    sizes = [size_of(panel) for panel in panels]
    top = TITLE_HEIGHT if titles else 0.0
    if titles:
        sizes = [
            (max(panel_width, title_width(title)), height)
            for (panel_width, height), (_, title) in zip(sizes, titles, strict=True)
        ]
    corners, figure_width, figure_height = _flow(sizes, top)
    page = Page(figure_width, figure_height)
    for i, (x, y) in enumerate(corners):
        if titles:
            draw_title(page, x, y, *titles[i])
            page.say("{}, {}:".format(*titles[i]))
        with page.part(x, y + top):
            panels[i]()
    return page.figure


def draw_title(page: Page, x: float, y: float, number: str, title: str) -> None:
    """Write a panel's number and title at its top left corner."""
    middle = y + TITLE_HEIGHT / 2
    badge = max(style.text_width(number, SMALL, "bold") + 0.1, 0.19)
    x += 0.08
    page.cell(x, middle - 0.095, badge, 0.19, number, INK, radius=0.095, color=PAPER, weight="bold")
    page.put(x + badge + 0.08, middle, title, 9.5, weight="bold")


def title_width(title: str) -> float:
    """Inches that a panel's number and title take."""
    return style.text_width(title, 9.5, "bold") + 0.5


def check_states(states: Sequence[Any], titles: Sequence[str] | None) -> None:
    """Refuse an empty film, and titles that do not fit it."""
    if len(states) == 0:
        raise ValueError("states must hold at least one recorded state, got none")
    if titles is not None and len(titles) != len(states):
        raise ValueError(
            f"titles must have one entry for each of the {len(states)} states, got {len(titles)}"
        )


def _flow(
    sizes: Sequence[tuple[float, float]], title_height: float
) -> tuple[list[tuple[float, float]], float, float]:
    """Place panels left to right, then top to bottom; return corners, total width and height."""
    corners: list[tuple[float, float]] = []
    x = y = row_height = right = 0.0
    for panel_width, panel_height in sizes:
        if x > 0 and x + panel_width > WIDTH + 1e-6:
            x, y, row_height = 0.0, y + row_height + GAP / 2, 0.0
        corners.append((x, y))
        right = max(right, x + panel_width)
        row_height = max(row_height, title_height + panel_height)
        x += panel_width + GAP
    return corners, right, y + row_height
