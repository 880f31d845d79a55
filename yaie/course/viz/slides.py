"""A slider over recorded states: a picture that changes as the reader moves through time."""

import base64
import html
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from IPython.display import display
from matplotlib.figure import Figure

from yaie.course.viz import film, style
from yaie.course.viz.page import Page, Picture, png, size_of

STRIP_FRAMES = 4

# All frames are one image, side by side, of which a window shows one. Where scripts run (in a page,
# or in a notebook that the reader ran or trusts), its loading shows the slider; elsewhere the
# window has a scroll bar. Margins in percent follow the width of the page. JupyterLab leaves the
# arrow keys to what has "data-lm-suppress-shortcuts".
HTML = """\
<div style="max-width: {width}px">
<label style="display: none">step <input data-lm-suppress-shortcuts type="range" \
min="1" max="{count}" value="1" style="width: 60%; vertical-align: middle" \
oninput="this.parentNode.nextElementSibling.firstElementChild.show(this.value)"> \
<output>1</output> of {count}</label>
<div style="overflow-x: auto"><img alt="{alt}" \
style="display: block; width: {percent}%; max-width: none" \
onload="const view = this.parentNode, label = view.previousElementSibling, \
texts = this.alt.split('\\n');
this.show = n => {{ this.style.marginLeft = 100 - 100 * n + '%'; this.alt = texts[n - 1];
label.lastElementChild.value = n }};
view.style.overflow = 'hidden'; label.style.display = ''; this.onload = null; this.show(1)" \
src="data:image/png;base64,{content}"></div>
</div>"""


class Slider:
    """Recorded states one at a time, below a film strip of some of them.

    It needs no kernel: what a notebook keeps of it is a page of its own. Once focused, the arrow
    keys move it. Notebooks call it `slider`.

    Args:
        states: recorded states, oldest first.
        draw: the picture of one state; see `yaie.course.viz.film`.
        titles: one for each state.
        frames: the states in the film strip: by default four, the first and the last among
            them; none with an empty list, where the strip would tell what the text asks.

    Attributes:
        strip: the film strip, for pages that show pictures only; None if it was not wanted.
        texts: the alternative text of each state.
        image: all states side by side, of the same size each.
    """

    def __init__(
        self,
        states: Sequence[Any],
        draw: film.Draw,
        titles: Sequence[str] | None = None,
        frames: Sequence[int] | None = None,
    ) -> None:
        film.check_states(states, titles)
        self.strip = _strip(states, draw, titles, frames)
        self._count = len(states)
        self.image, self.texts = _frames(states, draw, titles)

    def _repr_html_(self) -> str:
        width = self.image.get_size_inches()[0] / self._count
        return HTML.format(
            width=round(width * style.DPI),
            count=self._count,
            percent=100 * self._count,
            alt=html.escape("\n".join(self.texts)),
            content=base64.b64encode(png(self.image)).decode(),
        )

    def _ipython_display_(self) -> None:
        if self.strip is not None:
            content, metadata = self.strip._repr_png_()
            display({"image/png": content}, metadata={"image/png": metadata}, raw=True)
        display({"text/html": self._repr_html_()}, raw=True)


def _strip(
    states: Sequence[Any],
    draw: film.Draw,
    titles: Sequence[str] | None,
    frames: Sequence[int] | None,
) -> Figure | None:
    last = len(states) - 1
    if frames is None:
        count = min(STRIP_FRAMES, last + 1)
        frames = sorted({round(i * last / max(1, count - 1)) for i in range(count)})
    return film.film_strip(states, draw, titles, frames) if frames else None


def _frames(
    states: Sequence[Any], draw: film.Draw, titles: Sequence[str] | None
) -> tuple[Picture, list[str]]:
    """All states in a row, and the text of each. All get the size of the largest, so that the
    page below the slider does not jump."""
    frames = [partial(film.draw_frame, states, draw, index) for index in range(len(states))]
    width, height = (max(side) for side in zip(*map(size_of, frames), strict=True))
    # In whole pixels: a fraction would add up over the row.
    width = max([width, *map(film.title_width, titles or ())])
    width = math.ceil(width * style.DPI - 1e-6) / style.DPI
    top = film.TITLE_HEIGHT if titles else 0.0
    page, texts = Page(width * len(states), height + top), []
    for index, draw_one in enumerate(frames):
        said = len(page.figure.sentences)
        if titles:
            film.draw_title(page, index * width, 0.0, str(index + 1), titles[index])
            page.say(f"{titles[index]}:")
        with page.part(index * width, top):
            draw_one()
        texts.append(" ".join(page.figure.sentences[said:]))
    return page.figure, texts


slider = Slider
