"""A page measured in inches, and the marks that every picture is made of.

Positions are inches from the top left corner, so a picture is laid out once and looks the same
alone or as a panel of a film strip.
"""

from __future__ import annotations

import io
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.text import Text
from PIL import Image

from yaie.course.viz.style import BODY, DPI, FAINT, FONT, INK, MUTED, PAPER, SMALL, printable

DESCRIPTION = "Description"  # the keyword of PNG files for what the picture shows


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
    """Render a picture to the bytes of a PNG file, the same bytes each time, with its text."""
    buffer = io.BytesIO()
    metadata = {"Software": None, DESCRIPTION: picture.alt}
    picture.savefig(buffer, format="png", dpi=DPI, facecolor=PAPER, metadata=metadata)
    return buffer.getvalue()


def from_png(content: bytes) -> Picture:
    """A picture of which only the bytes of its PNG file are left."""
    with Image.open(io.BytesIO(content)) as file:
        pixels, alt = np.asarray(file), file.text[DESCRIPTION]
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


class Page:
    """A rectangle of `width` by `height` inches to draw on: a figure of its own, or a part of one.

    Attributes:
        figure: what a drawing function returns.
        ax: a sheet over the whole page, in inches, y pointing down; the page has its marks too.
    """

    def __init__(self, width: float, height: float, at: Place | None = None) -> None:
        self.width, self.height = width, height
        self._place = at or Place(Picture(width, height))
        self.figure = self._place.figure
        self.ax = self.axes(0, 0, width, height)
        self.ax.axis("off")
        self.ax.set(xlim=(0, width), ylim=(height, 0))
        self.put, self.note, self.plot = self.ax.put, self.ax.note, self.ax.plot
        self.box, self.cell, self.rect = self.ax.box, self.ax.cell, self.ax.rect

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
    ) -> Sheet:
        """Add axes that carry a scale only at these sides."""
        return self.axes(x, y, width, height).plain(left, bottom)

    def say(self, sentence: str) -> None:
        """Add a sentence to the picture's alternative text; its capital and stop may be missing."""
        sentence = " ".join(sentence.split()).lstrip(": ")
        is_name = re.match(r"\w+[_/.]\w", sentence)  # of code, which keeps its case
        begin = sentence[:1] if is_name else sentence[:1].upper()
        end = "" if sentence.endswith((".", "?", "!", ":")) else "."
        self.figure.sentences.append(begin + sentence[1:] + end)
