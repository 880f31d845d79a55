"""A slider over recorded states: a picture that changes as the reader moves through time."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import ipywidgets
from IPython.display import display
from matplotlib.figure import Figure

from yaie.course.viz import style
from yaie.course.viz.film import (
    TITLE_HEIGHT,
    Draw,
    check_states,
    draw_frame,
    draw_title,
    film_strip,
    frame_sizes,
    title_width,
)
from yaie.course.viz.page import Page, Picture, Place, png

STRIP_FRAMES = 4


class Slider:
    """Recorded states one at a time, under a film strip of some of them.

    Once focused, the arrow keys move it. Notebooks call it `slider`.

    Args:
        states: recorded states, oldest first.
        draw: the picture of one state; see `yaie.course.viz.film`.
        titles: one for each state.
        frames: the states in the film strip: by default four, the first and the last among
            them; none with an empty list.

    Attributes:
        strip: the film strip, which pages without a kernel show; None if it was not wanted.
        control: the `IntSlider`.
        image: the widget that shows the picture, as a PNG with its alternative text.
        widget: both.
    """

    def __init__(
        self,
        states: Sequence[Any],
        draw: Draw,
        titles: Sequence[str] | None = None,
        frames: Sequence[int] | None = None,
    ) -> None:
        check_states(states, titles)
        self._states, self._draw, self._titles = list(states), draw, titles
        sizes = frame_sizes(self._states, draw)
        # Every frame gets the size of the largest, so that the page below does not jump.
        width, height = (max(side) for side in zip(*sizes, strict=True))
        width = max([width, *map(title_width, titles or ())])
        self._size = width, height
        self._html = lru_cache(maxsize=None)(self._render)
        self.strip = self._make_strip(frames)
        self.control = ipywidgets.IntSlider(
            1, 1, len(states), description="step", layout={"width": "60%"}
        )
        self.image = ipywidgets.HTML(
            value=self._html(0),
            layout={"width": f"{math.ceil(width * style.DPI)}px", "max_width": "100%"},
        )
        self.control.observe(self._show, names="value")
        self.widget = ipywidgets.VBox([self.control, self.image])

    def _make_strip(self, frames: Sequence[int] | None) -> Figure | None:
        last = len(self._states) - 1
        if frames is None:
            count = min(STRIP_FRAMES, last + 1)
            frames = sorted({round(i * last / max(1, count - 1)) for i in range(count)})
        return film_strip(self._states, self._draw, self._titles, frames) if frames else None

    def _render(self, index: int) -> str:
        width, height = self._size
        top = TITLE_HEIGHT if self._titles else 0.0
        figure = Picture(width, height + top)
        if self._titles:
            page = Page(width, height + top, Place(figure))
            draw_title(page, 0.0, 0.0, str(index + 1), self._titles[index])
            page.say(f"{self._titles[index]}:")
        draw_frame(self._states, self._draw, index, at=Place(figure, 0.0, top))
        content = base64.b64encode(png(figure)).decode()
        return f'<img src="data:image/png;base64,{content}" alt="{html.escape(figure.alt)}">'

    def _show(self, change: dict[str, Any]) -> None:
        self.image.value = self._html(change["new"] - 1)

    def _ipython_display_(self) -> None:
        if self.strip is not None:
            content, metadata = self.strip._repr_png_()
            display({"image/png": content}, metadata={"image/png": metadata}, raw=True)
        # No text beside the widget: it would hold bytes of the picture, which differ by machine.
        bundle = self.widget._repr_mimebundle_()
        view = "application/vnd.jupyter.widget-view+json"
        display({view: bundle[view]}, raw=True)


slider = Slider
