"""A page measured in inches, and the marks that every picture is made of.

Positions are inches from the top left corner, so a picture is laid out once and looks the same
alone or as a panel of a film strip.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from yaie.course.viz import style
from yaie.course.viz.style import BODY, DPI, FAINT, FONT, INK, MUTED, PAPER, SMALL, WASH, printable

DESCRIPTION = "Description"  # the keyword of PNG files for what the picture shows
HALO = [withStroke(linewidth=2.5, foreground=PAPER)]  # path effects: words stay readable on lines
Interval = tuple[float, float]  # from, to


class Sheet(Axes):
    """Axes that know the course's marks: words, boxes and cells."""

    def put(
        self,
        x: float,
        y: float,
        text: str,
        size: float = BODY,
        color: Any = INK,
        ha: str = "left",
        va: str = "center_baseline",
        weight: str = "normal",
        **options: Any,
    ) -> Text:
        """Write one line of text. Dollar signs are dollar signs, and nothing is clipped."""
        options |= {"fontsize": size, "fontweight": weight, "fontfamily": FONT}
        options |= {"color": color, "ha": ha, "va": va, "parse_math": False}
        return self.text(x, y, printable(text), **options)

    def note(self, x: float, y: float, text: str, ha: str = "left", **options: Any) -> Text:
        """Write small and gray."""
        return self.put(x, y, text, SMALL, MUTED, ha, **options)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        face: Any = "none",
        edge: Any = "none",
        line: float = 1.0,
        radius: float = 0.05,
        **options: Any,
    ) -> FancyBboxPatch:
        """Draw a rectangle with rounded corners; x and y are its least values."""
        shape = f"round,pad=0,rounding_size={min(radius, width / 2, height / 2)}"
        options |= {"facecolor": face, "edgecolor": edge, "linewidth": line}
        patch = FancyBboxPatch((x, y), width, height, boxstyle=shape, **options)
        self.add_artist(patch)  # not add_patch, which is slow: it measures what an inch page knows
        return patch

    def cell(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str,
        face: Any = "none",
        edge: Any = "none",
        line: float = 1.0,
        radius: float = 0.05,
        size: float = SMALL,
        color: Any = INK,
        **options: Any,
    ) -> None:
        """Draw a box with a text in its middle."""
        self.box(x, y, width, height, face, edge, line, radius)
        self.put(x + width / 2, y + height / 2, text, size, color, "center", **options)

    def rect(
        self, x: float, y: float, width: float, height: float, face: Any = "none", **options: Any
    ) -> None:
        """Draw a rectangle with sharp corners."""
        self.add_artist(Rectangle((x, y), width, height, **{"facecolor": face, **options}))

    def arrow(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        color: Any = INK,
        bend: float = 0.0,
        **options: Any,
    ) -> None:
        """Draw an arrow from point to point, bent to the left by `bend` of its length."""
        options = {"arrowstyle": "-|>", "mutation_scale": 8, "shrinkA": 0, "shrinkB": 0} | options
        curve = f"arc3,rad={bend}"
        self.add_artist(FancyArrowPatch(start, end, connectionstyle=curve, color=color, **options))

    def label_scales(self, **axes: str) -> None:
        """Name the scales: `label_scales(x="tokens", y="seconds")`."""
        for axis, words in axes.items():
            getattr(self, f"set_{axis}label")(words, fontsize=SMALL, color=MUTED, fontfamily=FONT)

    def plain(self, left: bool = True, bottom: bool = True) -> Sheet:
        """Keep of the frame only the sides that carry a scale, in quiet colors."""
        for side, keep in {"left": left, "bottom": bottom, "top": False, "right": False}.items():
            self.spines[side].set_visible(keep)
            self.spines[side].set_color(FAINT)
        self.tick_params(labelsize=SMALL, colors=MUTED, labelfontfamily=FONT, length=3, color=FAINT)
        self.tick_params(left=left, labelleft=left, bottom=bottom, labelbottom=bottom)
        return self


@dataclass(frozen=True)
class Grid:
    """A part of a sheet with units of its own: rows of `height` inches, columns of `width` inches.

    Rows and columns may be fractions: a grid also carries bars along a scale, and the tiles of a
    matrix. `gap` inches stay free at the right of each of them, `gap_below` inches below.
    """

    ax: Sheet
    left: float
    top: float
    width: float
    height: float
    gap: float = 0.0
    gap_below: float = 0.0

    def x(self, column: float) -> float:
        return self.left + column * self.width

    def y(self, row: float) -> float:
        return self.top + row * self.height

    def middle(self, row: float) -> float:
        """The y of the middle of a row's cells."""
        return self.y(row + 0.5) - self.gap_below / 2

    def area(
        self,
        rows: Interval,
        columns: Interval,
        face: Any = "none",
        text: str = "",
        size: float = SMALL,
        color: Any = INK,
        edge: Any = "none",
        line: float = 0.8,
        radius: float = 0.0,
        weight: str = "normal",
        **options: Any,
    ) -> None:
        """Fill the rows and columns from … to …, and write a text in their middle."""
        x, y = self.x(columns[0]), self.y(rows[0])
        width, height = self.x(columns[1]) - x - self.gap, self.y(rows[1]) - y - self.gap_below
        if radius:
            self.ax.box(x, y, width, height, face, edge, line, radius, **options)
        else:
            self.ax.rect(x, y, width, height, face, edgecolor=edge, linewidth=line, **options)
        if text:
            self.ax.put(x + width / 2, y + height / 2, text, size, color, "center", weight=weight)

    def cell(self, row: float, column: float, face: Any = "none", text: str = "", **options: Any):
        """Fill one cell; the options are those of `area`."""
        self.area((row, row + 1), (column, column + 1), face, text, **options)

    def bar(self, row: float, begin: float, end: float, face: Any, text: str = "", **options: Any):
        """Fill a row from `begin` to `end`, and write the text in it if it fits."""
        end = max(end, begin + (0.01 + self.gap) / self.width)
        room = (end - begin) * self.width - self.gap
        fits = style.text_width(text, options.get("size", SMALL)) + 0.03 < room
        self.area((row, row + 1), (begin, end), face, text if fits else "", **options)

    def name(self, row: float, text: str, size: float = SMALL, **options: Any) -> None:
        """Write left of a row."""
        self.ax.put(self.left - 0.1, self.middle(row), text, size, ha="right", **options)

    def head(self, column: float, text: str, size: float = 6.5, **options: Any) -> None:
        """Write above the column that begins at `column`."""
        x = self.x(column + 0.5) - self.gap / 2
        self.ax.put(x, self.top - 0.1, text, size, MUTED, "center", **options)


class Picture(Figure):
    """A figure that shows itself in a notebook and that pyplot knows nothing of: nothing leaks.

    Attributes:
        sentences: what is to be seen, for readers who cannot see it; `Page.say` adds to them.
    """

    def __init__(self, width: float, height: float) -> None:
        self.sentences: list[str] = []
        pixels = math.ceil(width * DPI - 1e-6), math.ceil(height * DPI - 1e-6)
        figsize = pixels[0] / DPI, pixels[1] / DPI
        super().__init__(figsize=figsize, dpi=DPI, facecolor=PAPER)

    def __repr__(self) -> str:
        return "<Picture>"  # the size would vary with the fonts of the machine

    @property
    def alt(self) -> str:
        """The alternative text."""
        return " ".join(self.sentences)

    def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
        return png(self), {"alt": self.alt}


def png(picture: Picture) -> bytes:
    """Render a picture to the bytes of a PNG file, the same bytes each time, with its text.

    With a palette of 256 colors a file is a third as large.
    """
    drawn, buffer, text = io.BytesIO(), io.BytesIO(), PngInfo()
    text.add_text(DESCRIPTION, picture.alt)
    unpacked = {"compress_level": 0}  # it is decoded right away
    picture.savefig(drawn, format="png", dpi=DPI, facecolor=PAPER, pil_kwargs=unpacked)
    with Image.open(drawn) as file:
        colors = file.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    colors.save(buffer, "PNG", optimize=True, pnginfo=text)
    return buffer.getvalue()


def from_png(content: bytes) -> Picture:
    """A picture of which only the bytes of its PNG file are left."""
    with Image.open(io.BytesIO(content)) as file:
        pixels, alt = np.asarray(file.convert("RGB")), file.text[DESCRIPTION]
    picture = Picture(pixels.shape[1] / DPI, pixels.shape[0] / DPI)
    picture.figimage(pixels)
    picture.sentences.append(alt)
    return picture


@dataclass(frozen=True)
class Place:
    """Where on a larger figure a picture goes: its top left corner, in inches."""

    figure: Figure
    x: float = 0.0
    y: float = 0.0


_place: ContextVar[Place | None] = ContextVar("_place", default=None)  # of the next page


@contextmanager
def _placed(place: Place | None) -> Iterator[None]:
    """Pages that are made inside are placed there; with None each is a figure of its own."""
    before = _place.set(place)
    try:
        yield
    finally:
        _place.reset(before)


def size_of(draw: Callable[[], Figure]) -> tuple[float, float]:
    """Width and height of a picture in inches; it is drawn once by itself to measure it."""
    with _placed(None):
        return tuple(draw().get_size_inches())


class Page:
    """A rectangle of `width` by `height` inches to draw on: a figure of its own, or a part of one.

    Attributes:
        figure: what a drawing function returns.
        ax: a sheet over the whole page, in inches, y pointing down; the page has its marks too.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._place = _place.get() or Place(Picture(width, height))
        self.figure = self._place.figure
        self.ax = self.axes(0, 0, width, height)
        self.ax.axis("off")
        self.ax.set(xlim=(0, width), ylim=(height, 0))
        self.put, self.note, self.plot = self.ax.put, self.ax.note, self.ax.plot
        self.box, self.cell, self.rect = self.ax.box, self.ax.cell, self.ax.rect
        self.arrow = self.ax.arrow

    def part(self, x: float, y: float) -> AbstractContextManager[None]:
        """Pages that are made inside are parts of this one, their top left corners at (x, y)."""
        return _placed(Place(self.figure, self._place.x + x, self._place.y + y))

    def grid(
        self,
        left: float,
        top: float,
        width: float,
        height: float,
        gap: float = 0.0,
        gap_below: float | None = None,
    ) -> Grid:
        """Lay a grid of cells, `width` by `height` inches each, on the page."""
        below = gap if gap_below is None else gap_below
        return Grid(self.ax, left, top, width, height, gap, below)

    def legend(self, x: float, y: float, kinds: Mapping[str, Any], down: bool = False) -> None:
        """Write words after squares of their colors, side by side or one below the other."""
        for words, face in kinds.items():
            self.box(x, y - 0.07, 0.14, 0.14, face, FAINT, 0.5, 0.02)
            self.note(x + 0.2, y, words)
            if down:
                y += 0.24
            else:
                x += 0.45 + style.text_width(words, SMALL)

    def axes(self, x: float, y: float, width: float, height: float) -> Sheet:
        """Add a sheet whose frame has its top left corner at (x, y), all in inches."""
        total_width, total_height = self.figure.get_size_inches()
        left = (self._place.x + x) / total_width
        bottom = 1 - (self._place.y + y + height) / total_height
        place = left, bottom, width / total_width, height / total_height
        ax = self.figure.add_axes(place, axes_class=Sheet)
        ax.set_facecolor("none")
        return ax

    def chart(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        left: bool = True,
        bottom: bool = True,
        lines: bool = False,
    ) -> Sheet:
        """Add axes that carry a scale only at these sides, with lines across if wanted."""
        ax = self.axes(x, y, width, height).plain(left, bottom)
        if lines:
            ax.grid(axis="y", color=WASH, lw=0.8)
            ax.set_axisbelow(True)
        return ax

    def say(self, sentence: str) -> None:
        """Add a sentence to the picture's alternative text; its capital and stop may be missing."""
        sentence = " ".join(sentence.split()).lstrip(": ")
        is_name = re.match(r"\w+[_/.]\w", sentence)  # of code, which keeps its case
        begin = sentence[:1] if is_name else sentence[:1].upper()
        end = "" if sentence.endswith((".", "?", "!", ":")) else "."
        self.figure.sentences.append(begin + sentence[1:] + end)
